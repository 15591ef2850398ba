"""The published vocabularies as files that peers read: ranks as tiktoken has them, and a `tokenizer.json`."""

import json
import sys
from pathlib import Path

from side_by_side.texts import SHARED

RANKS = "tokenizer.tiktoken"
JSON = "tokenizer.json"


def write_files(name: str, folder: Path) -> None:
    """Write `RANKS` and `JSON` of a vocabulary, both without special tokens."""
    import tokenizer

    source = SHARED / "vocabs" / ("gpt2_vocab.json" if name == "gpt2" else f"{name}_base.tiktoken")
    if not source.is_file():
        sys.exit(f"benchmarks: no vocabulary {source}; say with TOKMILL_SHARED_DATA where the shared data is")
    published = tokenizer.load(source) if name == "gpt2" else tokenizer.load(source, split_pattern=name)
    _, sidecar = published.save(folder, format="tiktoken")
    sidecar.unlink()  # it would bring GPT-2's special token back
    tokenizer.load(folder / RANKS, split_pattern=name).save(folder, format="huggingface")
    if name == "gpt2":
        _as_hugging_face_has_it(folder / JSON)


def _as_hugging_face_has_it(path: Path) -> None:
    """Say GPT-2's pattern in the way that peers know and have special code for."""
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    path.write_text(json.dumps(content))
