"""The published vocabularies as files that peers read: ranks as tiktoken has them, and a `tokenizer.json`."""

import sys
from pathlib import Path

from side_by_side.names import TRAINED
from side_by_side.texts import SHARED, load

RANKS = "tokenizer.tiktoken"
JSON = "tokenizer.json"


def write_files(name: str, folder: Path) -> None:
    """Write `RANKS` and `JSON` of a vocabulary, both without special tokens."""
    from tokmill import tokenizer

    if name == TRAINED:
        _write_trained(folder)
        return
    source = SHARED / "vocabs" / ("gpt2_vocab.json" if name == "gpt2" else f"{name}_base.tiktoken")
    if not source.is_file():
        sys.exit(f"benchmarks: no vocabulary {source}; say with TOKMILL_SHARED_DATA where the shared data is")
    published = tokenizer.load(source) if name == "gpt2" else tokenizer.load(source, split_pattern=name)
    _, sidecar = published.save(folder, format="tiktoken")
    sidecar.unlink()  # it would bring GPT-2's special token back
    tokenizer.load(folder / RANKS, split_pattern=name).save(folder, format="huggingface")


def _write_trained(folder: Path) -> None:
    """Train a vocabulary on Japanese text: few of its pre-tokens occur twice, and many are long."""
    from tokmill import tokenizer

    texts = load("japanese", 30_000_000)
    tokenizer.train(texts.strings(), vocab_size=32_000).save(folder, format="tiktoken")[1].unlink()
    tokenizer.load(folder / RANKS, split_pattern="gpt2").save(folder, format="huggingface")
