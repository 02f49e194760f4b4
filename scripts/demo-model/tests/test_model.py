"""The torch model against the numpy reference, and its parts."""
import numpy as np
import pytest
import torch

from ds4demo import config, numerics, parameters, quant, rounding
from ds4demo import reference as ref
from ds4demo.attention import Layout, Mode, best_rows
from ds4demo.model import Model
from ds4demo.sinkhorn import plain
from ds4demo.verify import largest_difference, reference_logits, torch_logits

VOCAB = 300


@pytest.fixture(autouse=True)
def float64():
    numerics.use(torch.float64, torch.float64)


def lively(seed: int = 3) -> dict[str, np.ndarray]:
    """Initial tensors with the small parts made large, so that a fault in any of them shows."""
    tensors = parameters.initial(config.tiny(VOCAB), seed)
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in tensors.items():
        if 'hc_' in name and 'scale' in name:
            tensors[name] = tensor * 8
        if 'sinks' in name or 'bias' in name:
            tensors[name] = torch.randn(tensor.shape, generator=generator)
    tensors['output.weight'] = tensors['output.weight'] * 20
    return {name: t.numpy() for name, t in tensors.items()}


def test_both_forward_passes_agree():
    tensors = lively()
    ids = np.random.default_rng(0).integers(0, VOCAB, 150).tolist()
    found = torch_logits(config.tiny(VOCAB), tensors, ids, torch.float64)
    wanted = reference_logits(config.tiny(VOCAB), tensors, ids)
    assert largest_difference(found[0], wanted[0]) < 1e-12
    assert largest_difference(found[1], wanted[1]) < 1e-12


def test_both_forward_passes_agree_on_quantised_values():
    tensors = quant.through(lively())
    ids = np.random.default_rng(1).integers(0, VOCAB, 40).tolist()
    found, wanted = torch_logits(config.tiny(VOCAB), tensors, ids), reference_logits(config.tiny(VOCAB), tensors, ids)
    assert largest_difference(found[0], wanted[0]) < 1e-3


def test_a_packed_document_sees_only_itself():
    model = Model(config.tiny(VOCAB), {n: torch.from_numpy(t) if t.dtype == np.int32 else torch.from_numpy(t).double() for n, t in lively().items()})
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCAB, (1, 384), generator=generator)
    with torch.no_grad():
        packed = model.logits(model.trunk(ids, Layout(torch.tensor([[0, 1, 1]])), Mode())[1])
        alone = model.logits(model.trunk(ids[:, 128:], Layout(torch.tensor([[0, 0]])), Mode())[1])
    assert torch.allclose(packed[128:], alone, atol=1e-10)


def test_selection_takes_the_earlier_of_equal_rows():
    scores = torch.tensor([[0.0, 2.0, 0.0, 0.0, 1.0]])
    mask = torch.tensor([[True, True, True, True, False]])
    assert best_rows(scores, mask, 2).tolist() == [[True, True, False, False, False]]


def test_mixing_matrices_are_doubly_stochastic():
    k = plain(torch.randn(50, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    assert (k.sum(-2) - 1).abs().max() < 1e-5 and (k.sum(-1) - 1).abs().max() < 1e-3


def test_roundings_equal_the_reference():
    x = torch.randn(200, 512, generator=torch.Generator().manual_seed(0))
    assert (rounding.fp8_row(x).numpy() == np.stack([ref.packed_row(row) for row in x.numpy()])).all()
    index = x[:, :128].double()
    assert np.abs(rounding.fp4_index(index).numpy() - ref.packed_index_queries(index.numpy())).max() < 1e-12


def test_gradients_reach_every_trained_tensor():
    from ds4demo.optimiser import Optimiser
    numerics.use(torch.float32, torch.float32)
    c = config.tiny(VOCAB)
    tensors = parameters.initial(c, 0)
    optimiser = Optimiser(tensors, c)
    ids = torch.randint(0, VOCAB, (1, 128))
    mode = Mode(index_loss=True, q4=True, roundings=True)
    streams, x = Model(c, tensors).trunk(ids, Layout(torch.zeros(1, 1, dtype=torch.int32)), mode)
    drafted = Model(c, tensors).draft(streams, ids, Layout(torch.zeros(1, 1, dtype=torch.int32)), mode)
    model = Model(c, tensors)
    (model.logits(x).float().square().mean() + model.logits(drafted).float().square().mean() + sum(mode.losses)).backward()
    assert [n for n, t in optimiser.trained.items() if t.grad is None or not t.grad.isfinite().all()] == []
