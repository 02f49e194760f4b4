//! Where rows lie in a bank, as kernels take it.

use crate::kv_rows::RowArray;
use bytemuck::NoUninit;

/// An array of rows. `cu/kv_rows.cuh` has the same structure.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct ArrayArgument {
    rows: u32,
    width: u32,
}

// SAFETY: `repr(C)`, two 4-byte fields: no padding.
unsafe impl NoUninit for ArrayArgument {}

impl ArrayArgument {
    pub(crate) fn new(array: RowArray) -> ArrayArgument {
        ArrayArgument { rows: array.rows as u32, width: array.width as u32 }
    }
}
