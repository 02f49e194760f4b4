//! How key-value rows are stored in a bank.
//!
//! Two kinds of rows exist: *attention* rows (key and value in one, the last 64 channels rotated) and *index* rows (the
//! indexer's keys). [`PackedRows`] is what ships: storing a row is also the rounding the model was trained with.
//! [`PlainRows`] keeps `f32` and rounds nothing; it exists to compare the graph with references that do not round.

mod fp4;
mod fp8;
mod hadamard;
mod packed;
mod plain;

pub use packed::PackedRows;
pub use plain::PlainRows;

/// Rotated channels at the end of an attention row.
pub const ROTARY: usize = 64;

/// Sections of an array of rows start at multiples of this many bytes.
const SECTION_ALIGN: usize = 16;

/// An array of rows in memory: how many, how wide. The array's bytes are laid out section by section (all codes, then
/// all rotary parts, then all exponents), so that loads are aligned whatever the row's own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowArray {
    /// Rows the array holds.
    pub rows: usize,
    /// Channels of a row.
    pub width: usize,
}

/// A storage format for both kinds of rows.
pub trait KvFormat: Clone + Copy + Send + Sync + 'static {
    /// What the format is called, also at the end of a device kernel's name.
    const NAME: &'static str;

    /// Bytes of an array of attention rows.
    fn attention_bytes(array: RowArray) -> usize;

    /// Stores `row` as row `index` of the array in `memory`.
    fn write_attention(memory: &mut [u8], array: RowArray, index: usize, row: &[f32]);

    /// Reads row `index` back.
    fn read_attention(memory: &[u8], array: RowArray, index: usize, row: &mut [f32]);

    /// Makes `row` what reading it back would give.
    fn round_attention(row: &mut [f32]);

    /// Bytes of an array of index rows.
    fn index_bytes(array: RowArray) -> usize;

    /// Stores `row`, as the compressor made it, as row `index`.
    fn write_index(memory: &mut [u8], array: RowArray, index: usize, row: &[f32]);

    /// Reads row `index` back.
    fn read_index(memory: &[u8], array: RowArray, index: usize, row: &mut [f32]);

    /// Whether all rows of an array of attention rows stand for finite numbers.
    fn attention_is_finite(memory: &[u8], array: RowArray) -> bool;

    /// Whether all rows of an array of index rows stand for finite numbers.
    fn index_is_finite(memory: &[u8], array: RowArray) -> bool;

    /// Brings one head of an index query into the space and the precision of stored index rows.
    fn round_index_query(head: &mut [f32]);
}

/// The smallest power of two `s`, as its exponent, with `peak <= s * top`.
fn scale_exponent(peak: f32, top: f32) -> i32 {
    let ratio = peak / top;
    let bits = ratio.to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    if bits & 0x7f_ffff == 0 { exponent } else { exponent + 1 }
}

/// `2^exponent` for exponents of normal numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// An exponent as the byte of an E8M0 scale.
fn to_e8m0(exponent: i32) -> u8 {
    u8::try_from(exponent + 127).expect("scales of finite rows are normal numbers")
}

/// The exponent an E8M0 byte stands for.
fn from_e8m0(byte: u8) -> i32 {
    i32::from(byte) - 127
}

fn peak(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |peak: f32, value| peak.max(value.abs()))
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(SECTION_ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_the_smallest_power_of_two_that_reaches_the_peak() {
        assert_eq!(scale_exponent(448.0, 448.0), 0);
        assert_eq!(scale_exponent(448.0_f32.next_up(), 448.0), 1);
        assert_eq!(scale_exponent(224.0, 448.0), -1);
        assert_eq!(scale_exponent(1e-4, 448.0), -22);
    }
}
