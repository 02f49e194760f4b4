//! Where a bank's bytes lie: block by block for compressed rows, all layers together, and one recurrent part.

use super::shape::{Compression, INDEX_WIDTH, Shape};
use ds4_kernels::bank::{BLOCK_TOKENS, BankSizes, BlockPlace, PoolPlace, WINDOW, WindowPlace, pool_floats};
use ds4_kernels::kv_rows::{KvFormat, RowArray};

/// Every part starts at a multiple of this.
const ALIGN: usize = 16;

/// A layer's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LayerPlaces {
    pub(super) window: WindowPlace,
    pub(super) compressed: Option<CompressedPlaces>,
    pub(super) index: Option<CompressedPlaces>,
}

/// A compressor's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CompressedPlaces {
    pub(super) rows: BlockPlace,
    pub(super) pool: PoolPlace,
}

/// All layers' parts and the sizes they add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BankLayout {
    pub(super) layers: Vec<LayerPlaces>,
    pub(super) sizes: BankSizes,
}

impl BankLayout {
    pub(super) fn new<F: KvFormat>(shape: &Shape) -> BankLayout {
        let mut sizes = BankSizes { block: 0, recurrent: 0 };
        let layers = shape.compression.iter().map(|&compression| place_layer::<F>(shape, compression, &mut sizes));
        BankLayout { layers: layers.collect(), sizes }
    }
}

fn place_layer<F: KvFormat>(shape: &Shape, compression: Compression, sizes: &mut BankSizes) -> LayerPlaces {
    let window = RowArray { rows: WINDOW, width: shape.head_width };
    let window = WindowPlace { offset: take(&mut sizes.recurrent, F::attention_bytes(window)), array: window };
    let overlapped = compression == Compression::Indexed;
    let mut place = |width: usize, bytes: fn(RowArray) -> usize| {
        let ratio = compression.ratio()?;
        let array = RowArray { rows: BLOCK_TOKENS / ratio, width };
        let rows = BlockPlace { offset: take(&mut sizes.block, bytes(array)), array };
        let floats = pool_floats(width, overlapped);
        let pool = PoolPlace { offset: take(&mut sizes.recurrent, floats * size_of::<f32>()), floats };
        Some(CompressedPlaces { rows, pool })
    };
    let compressed = place(shape.head_width, F::attention_bytes);
    let index = if overlapped { place(INDEX_WIDTH, F::index_bytes) } else { None };
    LayerPlaces { window, compressed, index }
}

/// Takes `bytes` from the end of a part and says where they start.
fn take(part: &mut usize, bytes: usize) -> usize {
    let start = *part;
    *part = (start + bytes).next_multiple_of(ALIGN);
    start
}
