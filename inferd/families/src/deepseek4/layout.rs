//! Where a bank's bytes lie: block by block for compressed rows, all layers together, and one recurrent part.

use super::shape::{Compression, INDEX_WIDTH, Shape};
use ds4_kernels::bank::{
    BLOCK_TOKENS, BankSizes, BlockPlace, PoolPlace, StreamsPlace, WINDOW, WindowPlace, pool_floats,
};
use ds4_kernels::hyper_connection::STREAMS;
use ds4_kernels::kv_rows::{KvFormat, RowArray};
use ds4_model::BankImage;
use sha2::{Digest, Sha256};

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

/// A draft block's parts: its window, in which the row at a position is of the token there and the streams of the token
/// before it, and the streams of the last token. The first position has no token before it, and its row no reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DraftPlaces {
    pub(super) window: WindowPlace,
    pub(super) streams: StreamsPlace,
}

/// All layers' parts and the sizes they add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BankLayout {
    pub(super) layers: Vec<LayerPlaces>,
    /// With a draft block.
    pub(super) draft: Option<DraftPlaces>,
    pub(super) sizes: BankSizes,
    /// Of the numbers that what is in these places is computed with.
    constants: String,
}

impl BankLayout {
    pub(super) fn new<F: KvFormat>(shape: &Shape, with_draft: bool) -> BankLayout {
        let mut sizes = BankSizes { block: 0, recurrent: 0 };
        let layers = shape.compression.iter().map(|&compression| place_layer::<F>(shape, compression, &mut sizes));
        let layers = layers.collect();
        let draft = with_draft.then(|| DraftPlaces {
            window: place_window::<F>(shape, 1, &mut sizes),
            streams: place_streams(shape, &mut sizes),
        });
        BankLayout { layers, draft, sizes, constants: digest(shape) }
    }
}

/// Dimensions and constants of a model in few words. They are metadata, which the identity of its weights says nothing
/// of: a file may come again with the same tensors and another rotary base.
fn digest(shape: &Shape) -> String {
    // How long conversations it was trained for changes no value.
    let shape = Shape { trained_context: 0, ..shape.clone() };
    let digest: [u8; 32] = Sha256::digest(format!("{shape:?}")).into();
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl BankLayout {
    /// Everything that the bytes depend on beside weights and tokens: places and formats of all parts in this build's
    /// words, and the model's constants.
    pub(super) fn describe<F: KvFormat>(&self) -> String {
        let layers: Vec<String> = self.layers.iter().map(LayerPlaces::describe).collect();
        let BankSizes { block, recurrent } = self.sizes;
        let draft = self.draft.map_or("", |_| ", a draft block's window and streams last");
        let (rows, constants) = (F::NAME, &self.constants);
        format!(
            "{rows} rows, pools of 3 sums, {block}+{recurrent} bytes: {}{draft}; constants {constants}",
            layers.join(" ")
        )
    }

    /// Whether an image of `tokens` tokens has this layout's sizes and only finite numbers; else what is wrong.
    pub(super) fn check<F: KvFormat>(&self, tokens: usize, image: &BankImage) -> Result<(), String> {
        let wanted = tokens.div_ceil(BLOCK_TOKENS);
        if image.blocks.len() != wanted {
            return Err(format!("has {} blocks; {tokens} tokens take {wanted}", image.blocks.len()));
        }
        let wrong =
            image.blocks.iter().map(|block| block.as_ref().as_ref()).find(|block| block.len() != self.sizes.block);
        if let Some(block) = wrong {
            return Err(format!("has a block of {} bytes; they have {}", block.len(), self.sizes.block));
        }
        if image.recurrent.len() != self.sizes.recurrent {
            let found = image.recurrent.len();
            return Err(format!("has a recurrent part of {found} bytes; they have {}", self.sizes.recurrent));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            if !layer.is_finite::<F>(image) {
                return Err(format!("has a value in layer {index} that is not a finite number"));
            }
        }
        if self.draft.is_some_and(|draft| !draft.is_finite::<F>(image)) {
            return Err("has a value of the draft block that is not a finite number".to_owned());
        }
        Ok(())
    }
}

impl LayerPlaces {
    fn describe(&self) -> String {
        let rows = |places: &Option<CompressedPlaces>| places.map_or(0, |places| places.rows.array.rows);
        format!("{}x{}+{}", self.window.array.width, rows(&self.compressed), rows(&self.index))
    }

    fn is_finite<F: KvFormat>(&self, image: &BankImage) -> bool {
        let rows = |places: &CompressedPlaces, is_finite: fn(&[u8], RowArray) -> bool| {
            image
                .blocks
                .iter()
                .all(|block| is_finite(&block.as_ref().as_ref()[places.rows.offset..], places.rows.array))
        };
        let pool = |places: &CompressedPlaces| {
            let bytes = &image.recurrent[places.pool.offset..][..places.pool.floats * size_of::<f32>()];
            // The largest gate of no token at all is minus infinity.
            bytes.as_chunks().0.iter().all(|&bytes| f32::from_le_bytes(bytes) < f32::INFINITY)
        };
        F::attention_is_finite(&image.recurrent[self.window.offset..], self.window.array)
            && self.compressed.iter().all(|places| pool(places) && rows(places, F::attention_is_finite))
            && self.index.iter().all(|places| pool(places) && rows(places, F::index_is_finite))
    }
}

impl DraftPlaces {
    fn is_finite<F: KvFormat>(&self, image: &BankImage) -> bool {
        let bytes = &image.recurrent[self.streams.offset..][..self.streams.floats * size_of::<f32>()];
        F::attention_is_finite(&image.recurrent[self.window.offset..], self.window.array)
            && bytes.as_chunks().0.iter().all(|&bytes| f32::from_le_bytes(bytes).is_finite())
    }
}

fn place_window<F: KvFormat>(shape: &Shape, oldest: usize, sizes: &mut BankSizes) -> WindowPlace {
    let array = RowArray { rows: WINDOW, width: shape.head_width };
    WindowPlace { offset: take(&mut sizes.recurrent, F::attention_bytes(array)), array, oldest }
}

fn place_streams(shape: &Shape, sizes: &mut BankSizes) -> StreamsPlace {
    let floats = STREAMS * shape.hidden;
    StreamsPlace { offset: take(&mut sizes.recurrent, floats * size_of::<f32>()), floats }
}

fn place_layer<F: KvFormat>(shape: &Shape, compression: Compression, sizes: &mut BankSizes) -> LayerPlaces {
    let window = place_window::<F>(shape, 0, sizes);
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
