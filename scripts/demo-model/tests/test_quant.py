"""Encoders and decoders of the published types."""
import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Q

from ds4demo import quant, rounding


@pytest.fixture
def weights():
    return np.random.default_rng(0).standard_normal((3, 4, 512)).astype(np.float32)


def test_q8_0_equals_the_public_encoder(weights):
    encoded = quant.encode_q8_0(weights)
    assert (encoded == gguf.quants.quantize(weights, Q.Q8_0)).all()
    assert (quant.decode_q8_0(encoded) == gguf.quants.dequantize(encoded, Q.Q8_0)).all()


def test_q4_k_decodes_as_the_public_decoder_does(weights):
    encoded = quant.encode_q4_k(weights)
    decoded = quant.decode_q4_k(encoded)
    assert (decoded == gguf.quants.dequantize(encoded, Q.Q4_K)).all()
    assert np.sqrt(((decoded - weights) ** 2).mean()) < 0.09


def test_training_rounds_to_what_the_file_holds(weights):
    trained = rounding.q4_k(torch.from_numpy(weights)).numpy()
    assert np.abs(trained - quant.decode_q4_k(quant.encode_q4_k(weights))).max() < 1e-6


def test_zero_blocks_survive():
    zeros = np.zeros((2, 256), np.float32)
    assert (quant.decode_q4_k(quant.encode_q4_k(zeros)) == 0).all()
    assert (quant.decode_q8_0(quant.encode_q8_0(zeros)) == 0).all()


def test_types_follow_the_published_mix():
    kinds = {'token_embd.weight': 'F16', 'output.weight': 'Q8_0', 'blk.1.attn_q_b.weight': 'Q8_0', 'blk.1.indexer.attn_q_b.weight': 'F16', 'blk.0.ffn_up_exps.weight': 'Q4_K',
             'blk.0.ffn_up_shexp.weight': 'Q8_0', 'blk.0.attn_norm.weight': 'F32', 'blk.0.hc_attn_fn.weight': 'F16', 'blk.0.ffn_gate_tid2eid.weight': 'I32',
             'mtp.0.e_proj.weight': 'Q8_0', 'blk.1.indexer.proj.weight': 'F16', 'blk.1.exp_probs_b.bias': 'F32', 'blk.1.attn_compressor_ape.weight': 'F16'}
    assert {name: quant.kind_of(name).value for name in kinds} == kinds


def test_settled_values_encode_to_themselves(weights):
    for name in ('blk.0.ffn_up_exps.weight', 'blk.0.attn_kv.weight'):
        settled = quant.settled(name, weights)
        assert (quant.decode(quant.kind_of(name), quant.encode(name, settled)) == settled).all()
        assert np.sqrt(((settled - weights) ** 2).mean()) < 0.09
