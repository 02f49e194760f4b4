//! Rows as `f32`, unrounded.

use super::{KvFormat, RowArray};
use std::ops::Range;

/// Every row as it was computed.
#[derive(Clone, Copy, Debug)]
pub struct PlainRows;

fn place(array: RowArray, index: usize) -> Range<usize> {
    let bytes = array.width * 4;
    index * bytes..(index + 1) * bytes
}

fn write(memory: &mut [u8], array: RowArray, index: usize, row: &[f32]) {
    for (bytes, value) in memory[place(array, index)].as_chunks_mut().0.iter_mut().zip(row) {
        *bytes = value.to_le_bytes();
    }
}

fn read(memory: &[u8], array: RowArray, index: usize, row: &mut [f32]) {
    for (value, bytes) in row.iter_mut().zip(memory[place(array, index)].as_chunks().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

impl KvFormat for PlainRows {
    const NAME: &'static str = "plain";

    fn attention_bytes(array: RowArray) -> usize {
        array.rows * array.width * 4
    }

    fn write_attention(memory: &mut [u8], array: RowArray, index: usize, row: &[f32]) {
        write(memory, array, index, row);
    }

    fn read_attention(memory: &[u8], array: RowArray, index: usize, row: &mut [f32]) {
        read(memory, array, index, row);
    }

    fn round_attention(_: &mut [f32]) {}

    fn index_bytes(array: RowArray) -> usize {
        array.rows * array.width * 4
    }

    fn write_index(memory: &mut [u8], array: RowArray, index: usize, row: &[f32]) {
        write(memory, array, index, row);
    }

    fn read_index(memory: &[u8], array: RowArray, index: usize, row: &mut [f32]) {
        read(memory, array, index, row);
    }

    fn attention_is_finite(memory: &[u8], array: RowArray) -> bool {
        memory[..Self::attention_bytes(array)].as_chunks().0.iter().all(|bytes| f32::from_le_bytes(*bytes).is_finite())
    }

    fn index_is_finite(memory: &[u8], array: RowArray) -> bool {
        Self::attention_is_finite(memory, array)
    }

    fn round_index_query(_: &mut [f32]) {}
}
