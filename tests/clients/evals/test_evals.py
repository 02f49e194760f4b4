"""lm-eval, as it is, over /v1/completions: a task of ours with local data, log-probabilities of given continuations."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from server import PATIENCE, Server

HERE = Path(__file__).parent


def evaluate(server, tokenized):
    """Runs the task; returns per document the log-probabilities of its choices, and the accuracy."""
    arguments = {
        "base_url": f"{server.url}/v1/completions", "model": "any", "tokenizer_backend": "remote",
        "tokenized_requests": tokenized, "num_concurrent": 1, "max_retries": 1,
    }
    with tempfile.TemporaryDirectory() as out:
        environment = {**os.environ, "HF_HOME": out, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
        subprocess.run(
            [sys.executable, "-m", "lm_eval", "--model", "local-completions",
             "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
             "--tasks", "ds4_capitals", "--include_path", str(HERE), "--output_path", out, "--log_samples"],
            cwd=HERE, env=environment, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        [samples] = Path(out).rglob("samples_*.jsonl")
        documents = [json.loads(line) for line in samples.read_text().splitlines()]
        [results] = Path(out).rglob("results_*.json")
        accuracy = json.loads(results.read_text())["results"]["ds4_capitals"]["acc,none"]
    documents.sort(key=lambda document: document["doc_id"])
    return [[float(choice[0]) for choice in document["filtered_resps"]] for document in documents], accuracy


class Harness(unittest.TestCase):
    def test_text_prompts_and_token_prompts_are_both_scored(self):
        with Server.demo() as server:
            by_text, accuracy = evaluate(server, tokenized=False)
            by_tokens, _ = evaluate(server, tokenized=True)
            again, same = evaluate(server, tokenized=False)
        self.assertEqual(len(by_text), 8)
        self.assertTrue(all(value < 0 for choices in by_text + by_tokens for value in choices))
        self.assertEqual((again, same), (by_text, accuracy), "the same prompts give the same figures")
        self.assertGreater(accuracy, 0.5, "the demo model knows its capitals")


if __name__ == "__main__":
    unittest.main()
