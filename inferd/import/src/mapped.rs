//! Tensors over mapped ranges.

use crate::{Tensor, Weights};
use ds4_gpu::Memory;
use ds4_manifest::Place;
use ds4_units::{Layout, TensorType};

/// One tensor and where it lies; `None` if it lies in no range.
pub(crate) struct Placed<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: TensorType,
    pub(crate) dims: &'a [u64],
    pub(crate) layout: Layout,
    pub(crate) place: Option<Place>,
}

/// All of these tensors over their ranges, or the name of the first that cannot be had.
pub(crate) fn weights<'a>(ranges: &[Memory], tensors: impl IntoIterator<Item = Placed<'a>>) -> Result<Weights, String> {
    let tensors = tensors.into_iter().map(|Placed { name, kind, dims, layout, place }| {
        let tensor = place.and_then(|place| {
            let memory = ranges.get(place.range as usize)?.clone();
            let end = place.offset.checked_add(place.len)?;
            Tensor::new(name.to_owned(), kind, dims.to_vec(), layout, memory, place.offset.index()..end.index())
        });
        tensor.ok_or_else(|| name.to_owned())
    });
    Weights::from_tensors(tensors.collect::<Result<Vec<_>, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ds4_units::Bytes;

    fn placed(name: &str, range: u32, offset: u64) -> Placed<'_> {
        let place = Some(Place { range, offset: Bytes(offset), len: Bytes(8) });
        Placed { name, kind: TensorType::F32, dims: &[2], layout: Layout::Gguf, place }
    }

    #[test]
    fn every_tensor_is_found_or_none_is_given() {
        let ranges = vec![Memory::host((0..16).collect::<Vec<u8>>())];
        let all = weights(&ranges, [placed("a", 0, 0), placed("b", 0, 8)]).unwrap();
        assert_eq!(all.tensor("b").unwrap().bytes().unwrap()[..], [8, 9, 10, 11, 12, 13, 14, 15]);
        for (range, offset) in [(1, 0), (0, 16), (0, 9), (0, u64::MAX)] {
            assert_eq!(weights(&ranges, [placed("a", 0, 0), placed("b", range, offset)]).unwrap_err(), "b");
        }
        assert_eq!(weights(&ranges, [Placed { place: None, ..placed("c", 0, 0) }]).unwrap_err(), "c");
    }
}
