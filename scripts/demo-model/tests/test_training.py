"""Packing, resuming, exporting: the pipeline on the smallest model."""
import argparse
import json

import numpy as np
import torch

from conftest import CORPUS
from ds4demo import checkpoint, config, gguf_file, quant
from ds4demo.packing import Batch, Document, Source, batches, pack
from ds4demo.train import REFINE, Schedule, Trainer


def work_folder(tmp_path, tokenizer):
    work = tmp_path / 'work'
    work.mkdir()
    (work / 'prose.json').write_text(json.dumps(CORPUS))
    tokenizer.save(str(work / 'tokenizer.json'))
    return work


class OneBatch:
    """A feed that gives the same batch for ever."""

    def __init__(self, batch: Batch):
        self.take = lambda: batch


def trainer(work, out, batch, **options):
    args = argparse.Namespace(work=work, out=out, seconds=1e9, tokens=batch.ids.size, short=128, long=256, workers=1, eval=0, eval_at=[], steps=3, device='cpu', tiny=True,
                              seed=1, init=None, refine=None)
    vars(args).update(options)
    out.mkdir(exist_ok=True)
    return Trainer(args, {False: OneBatch(batch), True: OneBatch(batch)}, 0, 1)


def test_documents_start_at_multiples_of_128_and_padding_stands_alone():
    documents = [Document([5] * 130, [False] * 130), Document([6] * 10, [True] * 10)]
    batch, left = pack(documents, 1, 512)
    assert not left and [p.start for p in batch.places] == [0, 256]
    assert batch.docs.tolist() == [[0, 0, 1, -4]]
    assert batch.codes[0, 256] == 2 and batch.codes[0, 131] == 0


def test_what_does_not_fit_is_left_over():
    _, left = pack([Document([1] * 300, [False] * 300)], 1, 256)
    assert len(left) == 1


def test_batches_are_reproducible(tmp_path, small_tokenizer):
    work = work_folder(tmp_path, small_tokenizer)
    source = Source(work / 'prose.json', work / 'tokenizer.json', 2, 1024, 'short')
    first, second = next(batches(source, 3)), next(batches(source, 3))
    assert (first.ids == second.ids).all() and (first.docs == second.docs).all()


def test_training_lowers_the_loss_resumes_and_exports(tmp_path, small_tokenizer):
    work, out = work_folder(tmp_path, small_tokenizer), tmp_path / 'out'
    ids = small_tokenizer.encode('the size of a file ' * 20, add_special_tokens=False).ids[:100]
    batch, _ = pack([Document(ids, [True] * len(ids))], 1, 128)
    run = trainer(work, out, batch, steps=12)
    first = run.losses(batch, 0.0, run.mode(0.0))[1][0].item()
    run.run()
    assert run.losses(batch, 0.0, run.mode(0.0))[1][0].item() < first
    resumed = trainer(work, out, batch)
    assert resumed.step == 12
    assert all(torch.equal(resumed.tensors[n], t) for n, t in run.tensors.items())

    arrays = {n: t.numpy() for n, t in checkpoint.load_weights(out).items()}
    c = config.tiny(small_tokenizer.get_vocab_size())
    path = tmp_path / 'model.gguf'
    gguf_file.write(path, c, arrays, work / 'tokenizer.json')
    wanted, found = quant.through(arrays), gguf_file.read_tensors(path)
    assert set(found) == set(wanted) and all(np.array_equal(found[n], wanted[n]) for n in wanted)
    assert gguf_file.read_config(path) == c
    assert gguf_file.read_tokenizer(path).encode('Hi <think>', add_special_tokens=False).ids == small_tokenizer.encode('Hi <think>', add_special_tokens=False).ids


def test_settled_tensors_stay_what_the_file_holds_while_the_rest_learns(tmp_path, small_tokenizer):
    work, out = work_folder(tmp_path, small_tokenizer), tmp_path / 'out'
    batch, _ = pack([Document(list(range(5, 105)), [True] * 100)], 1, 128)
    run = trainer(work, out, batch, steps=3)
    run.schedule = Schedule(settle=0.0, roundings=0.0)
    before = {n: t.detach().clone() for n, t in run.tensors.items()}
    run.run()
    for name, tensor in run.tensors.items():
        if quant.is_quantised(name):
            w = tensor.detach().numpy()
            assert np.array_equal(quant.decode(quant.kind_of(name), quant.encode(name, w)), w), name
    assert not torch.equal(before['token_embd.weight'], run.tensors['token_embd.weight'])

    arrays = {n: t.numpy() for n, t in checkpoint.load_weights(out).items()}
    file, half = quant.through(arrays), quant.through(arrays, half=True)
    assert max(np.abs(file[n] - half[n]).max() / max(np.abs(half[n]).max(), 1e-9) for n in file) < 2e-3


def test_schedules_warm_up_and_decay():
    whole = Schedule()
    assert whole.factor(0.2, 1000) == 1.0 and whole.factor(0.2, 0) < 0.01 and abs(whole.factor(1.0, 1000) - 0.04) < 1e-9
    assert REFINE.factor(0.5, 1000) < REFINE.rate


def test_saved_pieces_stay_under_their_limit(tmp_path):
    tensors = {f't{i}': torch.zeros(2**21) for i in range(10)}
    checkpoint.save_weights(tensors, tmp_path)
    pieces = list(tmp_path.glob('weights-*.pt'))
    assert len(pieces) > 1 and all(p.stat().st_size < 16 * 2**20 for p in pieces)
    assert set(checkpoint.load_weights(tmp_path)) == set(tensors)


def test_published_metadata_keys_are_all_there(tmp_path, small_tokenizer):
    work = work_folder(tmp_path, small_tokenizer)
    path = tmp_path / 'm.gguf'
    gguf_file.write(path, config.tiny(600), {'output_norm.weight': np.ones(256, np.float32)}, work / 'tokenizer.json')
    kv = gguf_file.metadata(path)
    assert kv['general.architecture'] == 'deepseek4' and kv['deepseek4.attention.compress_ratios'] == [0, 4, 128, 0]
    assert len(kv['tokenizer.ggml.tokens']) == 600 == kv['deepseek4.vocab_size']
