//! All weights of a model by tensor name.

use crate::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The weights a worker runs on. Cloning is cheap and keeps the memory alive.
#[derive(Clone, Debug)]
pub struct Weights {
    by_name: Arc<BTreeMap<String, Tensor>>,
}

impl Weights {
    /// Weights made of these tensors; `Err` names the first tensor that is there twice.
    pub fn from_tensors(tensors: impl IntoIterator<Item = Tensor>) -> Result<Weights, String> {
        let mut by_name = BTreeMap::new();
        for tensor in tensors {
            let name = tensor.name().to_owned();
            if by_name.insert(name.clone(), tensor).is_some() {
                return Err(name);
            }
        }
        Ok(Weights { by_name: Arc::new(by_name) })
    }

    /// The tensor with this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.by_name.get(name)
    }

    /// Every tensor, in name order.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.by_name.values()
    }
}
