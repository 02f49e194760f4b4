//! The packed rows that ship.
//!
//! An attention row of 512 channels takes 584 bytes: 448 E4M3 codes, 64 half floats for the rotated channels, and eight
//! bytes of E8M0 exponents (one per 64 codes, padded). An index row of 128 channels takes 68 bytes: 64 bytes of E2M1
//! code pairs and four exponents, after a Hadamard transform. Formulas: the public reference implementation's. The
//! reference also rounds each stored value to a half float; a value that this changes still has an exact code, so the
//! code of the rounded value is what is stored.

use super::{
    KvFormat, ROTARY, RowArray, fp4, fp8, from_e8m0, hadamard, padded, peak, power_of_two, scale_exponent, to_e8m0,
};
use half::f16;
use std::ops::Range;

/// Channels that share an exponent in an attention row.
const FP8_GROUP: usize = 64;
/// Channels that share an exponent in an index row.
const FP4_GROUP: usize = 32;
/// A group whose values are all smaller is scaled as if this were its peak.
const FP8_PEAK_FLOOR: f32 = 1e-4;
/// The same for index rows: six times the smallest normal number.
const FP4_PEAK_FLOOR: f32 = 6.0 * f32::MIN_POSITIVE;

/// E4M3 and half-float attention rows, E2M1 index rows.
#[derive(Clone, Copy, Debug)]
pub struct PackedRows;

/// Where the sections of an attention array lie.
struct AttentionSections {
    plain: usize,
    exponents_per_row: usize,
    rotary_at: usize,
    exponents_at: usize,
    len: usize,
}

impl AttentionSections {
    fn of(array: RowArray) -> AttentionSections {
        let plain = array.width - ROTARY;
        let exponents_per_row = (plain / FP8_GROUP).next_multiple_of(8);
        let rotary_at = padded(array.rows * plain);
        let exponents_at = rotary_at + padded(array.rows * ROTARY * 2);
        let len = exponents_at + padded(array.rows * exponents_per_row);
        AttentionSections { plain, exponents_per_row, rotary_at, exponents_at, len }
    }

    fn codes(&self, index: usize) -> Range<usize> {
        index * self.plain..(index + 1) * self.plain
    }

    fn rotary(&self, index: usize) -> Range<usize> {
        self.rotary_at + index * ROTARY * 2..self.rotary_at + (index + 1) * ROTARY * 2
    }

    fn exponents(&self, index: usize) -> Range<usize> {
        let start = self.exponents_at + index * self.exponents_per_row;
        start..start + self.plain / FP8_GROUP
    }
}

/// Where the sections of an index array lie.
fn index_sections(array: RowArray, index: usize) -> (Range<usize>, Range<usize>) {
    let (codes, exponents) = (array.width / 2, array.width / FP4_GROUP);
    let exponents_at = padded(array.rows * codes) + index * exponents;
    (index * codes..(index + 1) * codes, exponents_at..exponents_at + exponents)
}

/// The code of E4M3, its sign left out, that stands for no number.
const E4M3_NAN: u8 = 0x7f;
/// The largest stored exponent with which every code is a finite `f32`: 448 is below 2^9.
const E8M0_MOST: u8 = 127 + 127 - 9;
/// The exponent of a half float, all ones where it is no number.
const F16_EXPONENT: u16 = 0x7c00;

impl KvFormat for PackedRows {
    const NAME: &'static str = "packed";

    fn attention_bytes(array: RowArray) -> usize {
        AttentionSections::of(array).len
    }

    fn write_attention(memory: &mut [u8], array: RowArray, index: usize, row: &[f32]) {
        let sections = AttentionSections::of(array);
        let (plain, rotary) = row.split_at(sections.plain);
        for (group, values) in plain.as_chunks::<FP8_GROUP>().0.iter().enumerate() {
            let exponent = fp8_exponent(values);
            memory[sections.exponents(index)][group] = to_e8m0(exponent);
            let codes = &mut memory[sections.codes(index)][group * FP8_GROUP..][..FP8_GROUP];
            for (code, &value) in codes.iter_mut().zip(values) {
                *code = fp8_code(value, exponent);
            }
        }
        for (bytes, &value) in memory[sections.rotary(index)].as_chunks_mut().0.iter_mut().zip(rotary) {
            *bytes = f16::from_f32(value).to_le_bytes();
        }
    }

    fn read_attention(memory: &[u8], array: RowArray, index: usize, row: &mut [f32]) {
        let sections = AttentionSections::of(array);
        let (plain, rotary) = row.split_at_mut(sections.plain);
        let exponents = &memory[sections.exponents(index)];
        let codes = memory[sections.codes(index)].as_chunks::<FP8_GROUP>().0;
        for ((values, codes), &exponent) in plain.as_chunks_mut::<FP8_GROUP>().0.iter_mut().zip(codes).zip(exponents) {
            let scale = power_of_two(from_e8m0(exponent));
            for (value, &code) in values.iter_mut().zip(codes) {
                *value = fp8::decode(code) * scale;
            }
        }
        for (value, bytes) in rotary.iter_mut().zip(memory[sections.rotary(index)].as_chunks().0) {
            *value = f16::from_le_bytes(*bytes).to_f32();
        }
    }

    fn round_attention(row: &mut [f32]) {
        let (plain, rotary) = row.split_at_mut(row.len() - ROTARY);
        for values in plain.as_chunks_mut::<FP8_GROUP>().0 {
            let exponent = fp8_exponent(values);
            for value in values {
                *value = fp8::decode(fp8_code(*value, exponent)) * power_of_two(exponent);
            }
        }
        for value in rotary {
            *value = f16::from_f32(*value).to_f32();
        }
    }

    fn index_bytes(array: RowArray) -> usize {
        padded(array.rows * array.width / 2) + padded(array.rows * array.width / FP4_GROUP)
    }

    fn write_index(memory: &mut [u8], array: RowArray, index: usize, row: &[f32]) {
        let mut row = row.to_vec();
        hadamard::transform(&mut row);
        let (codes, exponents) = index_sections(array, index);
        for (group, values) in row.as_chunks::<FP4_GROUP>().0.iter().enumerate() {
            let exponent = fp4_exponent(values);
            memory[exponents.clone()][group] = to_e8m0(exponent);
            let codes = &mut memory[codes.clone()][group * FP4_GROUP / 2..][..FP4_GROUP / 2];
            for (code, pair) in codes.iter_mut().zip(values.as_chunks::<2>().0) {
                *code = fp4_stored_code(pair[0], exponent) | (fp4_stored_code(pair[1], exponent) << 4);
            }
        }
    }

    fn read_index(memory: &[u8], array: RowArray, index: usize, row: &mut [f32]) {
        let (codes, exponents) = index_sections(array, index);
        let codes = memory[codes].as_chunks::<{ FP4_GROUP / 2 }>().0;
        let groups = row.as_chunks_mut::<FP4_GROUP>().0;
        for ((values, codes), &exponent) in groups.iter_mut().zip(codes).zip(&memory[exponents]) {
            let scale = power_of_two(from_e8m0(exponent));
            for (pair, &code) in values.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
                *pair = [fp4::decode(code) * scale, fp4::decode(code >> 4) * scale];
            }
        }
    }

    fn attention_is_finite(memory: &[u8], array: RowArray) -> bool {
        let sections = AttentionSections::of(array);
        (0..array.rows).all(|index| {
            let rotary = memory[sections.rotary(index)].as_chunks().0;
            none(&memory[sections.codes(index)], |&code| code & 0x7f == E4M3_NAN)
                && none(rotary, |&bytes| u16::from_le_bytes(bytes) & F16_EXPONENT == F16_EXPONENT)
                && none(&memory[sections.exponents(index)], |&exponent| exponent > E8M0_MOST)
        })
    }

    fn index_is_finite(memory: &[u8], array: RowArray) -> bool {
        // Every four-bit code is a number.
        (0..array.rows).all(|index| {
            let (_, exponents) = index_sections(array, index);
            none(&memory[exponents], |&exponent| exponent > E8M0_MOST)
        })
    }

    fn round_index_query(head: &mut [f32]) {
        hadamard::transform(head);
        for values in head.as_chunks_mut::<FP4_GROUP>().0 {
            let exponent = fp4_exponent(values);
            for value in values {
                *value = fp4::decode(fp4::encode(*value * power_of_two(-exponent))) * power_of_two(exponent);
            }
        }
    }
}

/// Whether no item is wrong. Looks at all of them, many at a time: stopping at the first would look at one at a time.
fn none<T>(items: &[T], wrong: impl Fn(&T) -> bool) -> bool {
    !items.iter().fold(false, |found, item| found | wrong(item))
}

fn fp8_exponent(values: &[f32]) -> i32 {
    scale_exponent(peak(values).max(FP8_PEAK_FLOOR), fp8::TOP)
}

/// The code of `value` in units of `2^exponent`, after the half-float rounding of what it decodes to.
fn fp8_code(value: f32, exponent: i32) -> u8 {
    let unit = power_of_two(-exponent);
    let code = fp8::encode((value * unit).clamp(-fp8::TOP, fp8::TOP));
    let rounded = f16::from_f32(fp8::decode(code) * power_of_two(exponent)).to_f32();
    fp8::encode((rounded * unit).clamp(-fp8::TOP, fp8::TOP))
}

fn fp4_exponent(values: &[f32]) -> i32 {
    scale_exponent(peak(values).max(FP4_PEAK_FLOOR), fp4::TOP)
}

fn fp4_stored_code(value: f32, exponent: i32) -> u8 {
    let code = fp4::encode(value * power_of_two(-exponent));
    let rounded = f16::from_f32(fp4::decode(code) * power_of_two(exponent)).to_f32();
    fp4::encode(rounded * power_of_two(-exponent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHIPPED: RowArray = RowArray { rows: 32, width: 512 };

    #[test]
    fn a_row_of_the_shipped_width_takes_584_bytes_and_an_index_row_68() {
        assert_eq!(PackedRows::attention_bytes(SHIPPED), 32 * 584);
        assert_eq!(PackedRows::index_bytes(RowArray { rows: 32, width: 128 }), 32 * 68);
    }

    proptest! {
        #[test]
        fn reading_back_gives_the_rounded_row_and_rounding_again_changes_nothing(
            row in prop::collection::vec(-30.0f32..30.0, 512),
            exponent in -20i32..3,
            index in 0usize..32,
        ) {
            let row: Vec<f32> = row.iter().map(|value| value * power_of_two(exponent)).collect();
            let mut memory = vec![0xaa; PackedRows::attention_bytes(SHIPPED)];
            PackedRows::write_attention(&mut memory, SHIPPED, index, &row);
            let mut read = vec![0.0; 512];
            PackedRows::read_attention(&memory, SHIPPED, index, &mut read);
            let mut rounded = row.clone();
            PackedRows::round_attention(&mut rounded);
            prop_assert_eq!(&read, &rounded);
            for (value, rounded) in row.iter().zip(&rounded) {
                // Half a step of E4M3 relative to the value, or of its subnormals relative to the group's peak.
                prop_assert!((value - rounded).abs() <= value.abs() / 16.0 + 60.0 * power_of_two(exponent) / 448.0 / 512.0 + 1e-7);
            }
            PackedRows::round_attention(&mut rounded);
            prop_assert_eq!(read, rounded);
        }

        #[test]
        fn an_index_row_reads_back_as_the_rounded_query_does(row in prop::collection::vec(-4.0f32..4.0, 128)) {
            let array = RowArray { rows: 3, width: 128 };
            let mut memory = vec![0; PackedRows::index_bytes(array)];
            PackedRows::write_index(&mut memory, array, 2, &row);
            let mut read = vec![0.0; 128];
            PackedRows::read_index(&memory, array, 2, &mut read);
            let mut query = row;
            PackedRows::round_index_query(&mut query);
            prop_assert_eq!(read, query);
        }
    }
}
