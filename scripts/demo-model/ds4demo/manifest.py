"""The artifact manifest of exported files: sizes, SHA-256, family, limits, licence.

    python -m ds4demo.manifest --out ds4-demo-16m.json build/export/ds4-demo-16m.gguf build/export/ds4-demo-16m-mtp.gguf
"""
import argparse
import hashlib
import json
from pathlib import Path

TRAINED_CONTEXT = 16384


def described(path: Path) -> dict:
    return {'name': path.name, 'size': path.stat().st_size, 'sha256': hashlib.sha256(path.read_bytes()).hexdigest()}


def manifest(files: list[Path]) -> dict:
    return {
        'schema': 'ds4.artifact/1',
        'id': files[0].stem,
        'title': 'DS4 Demo, 16 M parameters: shows and tests the machinery',
        'family': 'deepseek4',
        'quantisation': 'Q4_K routed experts; Q8_0 attention, shared expert and head; F16 compressors and embedding; F32 and I32',
        'files': [described(path) for path in files],
        'limits': {'context': TRAINED_CONTEXT},
        'licence': {'name': 'MIT', 'url': None},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('files', type=Path, nargs='+')
    args = parser.parse_args()
    args.out.write_text(json.dumps(manifest(args.files), indent=2) + '\n')


if __name__ == '__main__':
    main()
