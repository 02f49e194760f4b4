//! Activations on the device.

use super::arena::Scratch;
use super::few::DueMixes;
use super::gemm_operand::{Order, OwnGemmOperand, Precision};
use super::hyper_connection::Mixes;
use super::vector::DeviceVector;
use ds4_gpu::DevicePtr;
use std::cell::{Cell, OnceCell};

/// `len` rows of `width` values, `f32`, row-major, without gaps, in the step's arena.
pub struct DeviceRows {
    memory: Scratch,
    len: usize,
    width: usize,
    /// The rows in the form that matrix products read, once one of them has made it.
    operand: OnceCell<Scratch>,
    /// The same for products with many rows, by order, and then the same of two half floats.
    gemm_operands: [OnceCell<OwnGemmOperand>; 4],
    /// What the kernel that wrote the rows as streams has left for the mixing of the next site.
    pub(super) begun: Option<Begun>,
    /// The same of many rows.
    pub(super) mixes: Option<Box<Mixes>>,
    /// For merge values: what a launch has still to make them of.
    pub(super) due: Cell<Option<DueMixes>>,
    /// The site's base and scale, which are read by that launch: they are there as long as these rows.
    pub(super) due_of: Option<[DeviceVector; 2]>,
}

/// A site's mixes, as sums over panels of channels.
pub(super) struct Begun {
    /// The site's mixing matrix.
    pub(super) matrix: DevicePtr,
    pub(super) partials: Scratch,
    pub(super) panels: usize,
}

impl DeviceRows {
    pub(crate) fn new(memory: Scratch, len: usize, width: usize) -> DeviceRows {
        let gemm_operands = Default::default();
        let (operand, begun, mixes, due) = (OnceCell::new(), None, None, Cell::default());
        DeviceRows { memory, len, width, operand, gemm_operands, begun, mixes, due, due_of: None }
    }

    /// Where the first value is.
    pub(crate) fn address(&self) -> DevicePtr {
        self.memory.address()
    }

    /// The same, for a kernel that changes the rows.
    pub(crate) fn changed(&mut self) -> DevicePtr {
        self.operand.take();
        self.gemm_operands.iter_mut().for_each(|operand| drop(operand.take()));
        self.begun = None;
        self.mixes = None;
        self.address()
    }

    /// The rows as an operand of matrix products; `make` makes it the first time.
    pub(crate) fn operand(&self, make: impl FnOnce() -> Scratch) -> &Scratch {
        self.operand.get_or_init(make)
    }

    /// The rows as an operand of products with many rows, at least of this precision; `make` makes it the first time.
    pub(crate) fn gemm_operand(
        &self,
        order: Order,
        precision: Precision,
        make: impl FnOnce() -> OwnGemmOperand,
    ) -> &OwnGemmOperand {
        let precise = &self.gemm_operands[2 + order as usize];
        match precision {
            Precision::One => precise.get().unwrap_or_else(|| self.gemm_operands[order as usize].get_or_init(make)),
            Precision::Two => precise.get_or_init(make),
        }
    }

    /// The same values in rows of another width.
    pub(super) fn reshaped(self, width: usize) -> DeviceRows {
        let values = self.len * self.width;
        assert!(values.is_multiple_of(width), "{values} values are not rows of {width}");
        DeviceRows::new(self.memory, values / width, width)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes of all rows.
    pub(crate) fn bytes(&self) -> u64 {
        (self.len * self.width * size_of::<f32>()) as u64
    }
}
