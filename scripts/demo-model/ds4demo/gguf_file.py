"""GGUF files: the model in the published mix of types, its MTP block in a file of its own, and an F16 variant of both.

    python -m ds4demo.gguf_file --work build --weights run --out build/export
"""
import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as GgufType
from tokenizers import Tokenizer, models

from . import checkpoint, config, quant
from .protocol import BOS_ID, EOS_ID, PAD_ID
from .quant import Kind
from .tokenizer import FIRST_TOKENS, PROTOCOL_TOKENS, blank, with_protocol

NAME = 'ds4-demo-16m'
ARCHITECTURE = 'deepseek4'
GATING_SQRT_SOFTPLUS = 4
MOSTLY_F16, MOSTLY_Q4_K = 1, 15
LIMIT_BYTES = 16 * 2**20


def integers(c: config.ModelConfig) -> dict[str, int]:
    return {
        'block_count': c.layers, 'context_length': config.CONTEXT_LENGTH, 'embedding_length': c.hidden, 'vocab_size': c.vocab,
        'attention.head_count': c.heads, 'attention.head_count_kv': 1, 'attention.key_length': config.HEAD_WIDTH, 'attention.value_length': config.HEAD_WIDTH,
        'rope.dimension_count': config.ROTARY, 'attention.q_lora_rank': c.query_rank, 'attention.output_lora_rank': c.group_rank,
        'attention.output_group_count': c.groups, 'expert_count': c.experts, 'expert_used_count': config.EXPERTS_USED,
        'expert_feed_forward_length': c.expert_width, 'expert_shared_count': 1, 'expert_gating_func': GATING_SQRT_SOFTPLUS, 'hash_layer_count': c.hash_layers,
        'attention.sliding_window': config.WINDOW, 'attention.indexer.head_count': c.index_heads, 'attention.indexer.key_length': config.INDEX_WIDTH,
        'attention.indexer.top_k': c.index_top_k, 'hyper_connection.count': config.STREAMS, 'hyper_connection.sinkhorn_iterations': config.SINKHORN_PASSES,
        'nextn_predict_layers': 1, 'rope.scaling.original_context_length': config.ROPE_ORIGINAL_CONTEXT,
    }


def floats(c: config.ModelConfig) -> dict[str, float]:
    return {
        'rope.freq_base': config.ROPE_BASE, 'rope.scaling.factor': config.ROPE_FACTOR, 'rope.scaling.yarn_beta_fast': config.YARN_BETA_FAST,
        'rope.scaling.yarn_beta_slow': config.YARN_BETA_SLOW, 'attention.compress_rope_freq_base': config.COMPRESS_ROPE_BASE,
        'expert_weights_scale': c.expert_scale, 'attention.layer_norm_rms_epsilon': config.RMS_EPS, 'hyper_connection.epsilon': config.HC_EPS,
    }


def add_metadata(writer: gguf.GGUFWriter, c: config.ModelConfig, half: bool) -> None:
    writer.add_name('DS4 Demo 16M')
    writer.add_file_type(MOSTLY_F16 if half else MOSTLY_Q4_K)
    writer.add_quantization_version(2)
    for key, value in integers(c).items():
        writer.add_uint32(f'{ARCHITECTURE}.{key}', value)
    for key, value in floats(c).items():
        writer.add_float32(f'{ARCHITECTURE}.{key}', value)
    writer.add_string(f'{ARCHITECTURE}.rope.scaling.type', 'yarn')
    writer.add_bool(f'{ARCHITECTURE}.expert_weights_norm', True)
    writer.add_array(f'{ARCHITECTURE}.attention.compress_ratios', [*c.ratios, 0])
    writer.add_array(f'{ARCHITECTURE}.swiglu_clamp_exp', [config.SWIGLU_LIMIT] * c.layers)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer_json: Path) -> None:
    """Model entries in id order, then the protocol's tokens."""
    model = json.loads(tokenizer_json.read_text())['model']
    entries = sorted(model['vocab'], key=model['vocab'].get)
    special, normal = len(FIRST_TOKENS), len(entries) - len(FIRST_TOKENS)
    types = [gguf.TokenType.CONTROL] * special + [gguf.TokenType.NORMAL] * normal + [gguf.TokenType.USER_DEFINED] * len(PROTOCOL_TOKENS)
    writer.add_tokenizer_model('gpt2')
    writer.add_tokenizer_pre('joyai-llm')
    writer.add_token_list(entries + list(PROTOCOL_TOKENS))
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else ' '.join(m) for m in model['merges']])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_pad_token_id(PAD_ID)
    writer.add_add_bos_token(False)


def write(path: Path, c: config.ModelConfig, tensors: dict[str, np.ndarray], tokenizer_json: Path, half: bool = False) -> None:
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    add_metadata(writer, c, half)
    add_tokenizer(writer, tokenizer_json)
    for name, tensor in tensors.items():
        kind = quant.kind_of(name, half)
        raw = GgufType[kind.value] if kind in (Kind.Q8_0, Kind.Q4_K) else None
        writer.add_tensor(name, np.ascontiguousarray(quant.encode(name, tensor, half)), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_tensors(*paths: Path) -> dict[str, np.ndarray]:
    """Dequantised tensors of one or more files, [out, in]."""
    tensors = {}
    for path in paths:
        for tensor in gguf.GGUFReader(path).tensors:
            values = quant.decode(Kind[tensor.tensor_type.name], np.asarray(tensor.data))
            tensors[tensor.name] = values.reshape([int(d) for d in reversed(tensor.shape)])
    return tensors


def metadata(path: Path) -> dict:
    return {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}


def read_config(path: Path) -> config.ModelConfig:
    kv = metadata(path)

    def of(key: str):
        return kv[f'{ARCHITECTURE}.{key}']
    return config.ModelConfig(
        vocab=of('vocab_size'), hidden=of('embedding_length'), ratios=tuple(of('attention.compress_ratios')[:of('block_count')]), heads=of('attention.head_count'),
        query_rank=of('attention.q_lora_rank'), groups=of('attention.output_group_count'), group_rank=of('attention.output_lora_rank'),
        expert_width=of('expert_feed_forward_length'), experts=of('expert_count'), hash_layers=of('hash_layer_count'),
        expert_scale=round(of('expert_weights_scale'), 6), index_heads=of('attention.indexer.head_count'), index_top_k=of('attention.indexer.top_k'))


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer that a reader of the file builds."""
    kv = metadata(path)
    entries = kv['tokenizer.ggml.tokens'][:-len(PROTOCOL_TOKENS)]
    tokenizer = blank()
    tokenizer.model = models.BPE({text: i for i, text in enumerate(entries)}, [tuple(m.split(' ')) for m in kv['tokenizer.ggml.merges']])
    tokenizer.add_special_tokens(list(FIRST_TOKENS))
    return with_protocol(tokenizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--work', type=Path, required=True, help='folder with tokenizer.json')
    parser.add_argument('--weights', type=Path, required=True, help='folder of weights-*.pt')
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer_json = args.work / 'tokenizer.json'
    c = config.ModelConfig(vocab=Tokenizer.from_file(str(tokenizer_json)).get_vocab_size())
    tensors = {name: t.numpy() for name, t in checkpoint.load_weights(args.weights).items()}
    draft = {name: t for name, t in tensors.items() if name.startswith('mtp.')}
    trunk = {name: t for name, t in tensors.items() if name not in draft}
    for suffix, part, half in (('', trunk, False), ('-mtp', draft, False), ('-f16', trunk, True), ('-mtp-f16', draft, True)):
        path = args.out / f'{NAME}{suffix}.gguf'
        write(path, c, part, tokenizer_json, half)
        print(f'{path}: {path.stat().st_size / 2**20:.2f} MiB')
        if not half and path.stat().st_size > LIMIT_BYTES:
            raise SystemExit(f'{path} is larger than {LIMIT_BYTES >> 20} MiB: use a smaller vocabulary or fewer experts')


if __name__ == '__main__':
    main()
