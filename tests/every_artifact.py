"""Makes small artifacts of every family, format and strategy, and prints what each of their files holds.

    python tests/every_artifact.py FOLDER [--workers N] [--all]

A program of its own, so that it runs in any environment in which tokmill is installed; tests compare what it
prints there (`tests/test_flows/test_equal_digests.py`). By default those of two families; with `--all`, every
family by every strategy, and variants of training, balance, mixture and packing besides. Every packing is
written in every format.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

from tokmill.flows.library import api
from tokmill.tasks.formats.packed.manifest import PackedFormat, Strategy
from tokmill.tasks.store import Store
from tokmill.tokenizer.pipeline.families import FAMILIES

Overrides = dict[str, Any]

PROFILE = """
name = "all"
[sources.tales]
files = ["tales/*.jsonl"]
[sources.notes]
files = ["notes.txt"]
format = "lines"
[ingest]
shard_bytes = 65536
[holdout.share]
tales = 0.1
[balance]
method = "temperature"
temperature = 1.7
[train]
vocab_size = 400
special_tokens = ["<|endoftext|>"]
[encode]
end_of_document = "<|endoftext|>"
[mix]
max_repetition = 3.0
[mix.weights]
tales = 0.7
notes = 0.2
[pack]
sequence_length = 48
sequences_per_shard = 100
"""
_LETTERS = "aeioukstmnrl äöß éñ дом река 日本 中文 𖺠𖺡 क्षि"
_VARIANTS: dict[str, Overrides] = {
    "unigram of bytes": {"train.family": "unigram", "train.byte_fallback": True, "train.vocab_size": 600},
    "unigram of words": {"train.family": "unigram", "train.seed": "words"},
    "unigram from merges": {"train.family": "unigram", "train.seed": "bpe"},
    "sentencepiece": {"train.family": "unigram", "train.mode": "sentencepiece"},
    "pairs by frequency": {"train.family": "wordpiece", "train.score": "frequency"},
    "words of bytes": {"train.family": "word_bpe", "train.letters": "bytes", "train.vocab_size": 700},
    "words' ends apart": {"train.family": "word_bpe", "train.end_of_word": "apart"},
    "lowest ids": {"train.tie_break": "lowest_ids", "train.split_pattern": "o200k"},
    "first seen": {"train.tie_break": "first_seen", "train.normalizer": "nfkc", "train.digits": "single"},
    "unimax": {"balance.method": "unimax"},
    "proportional": {"balance.method": "proportional"},
    "easy to hard": {
        "mix.curriculum.difficulty": ["length", "noise", "perplexity"],
        "mix.curriculum.competence": "exp",
        "mix.curriculum.start": 0.2,
    },
    "from root to all": {"mix.curriculum.difficulty": ["perplexity"], "mix.curriculum.competence": "sqrt"},
    "in steps": {"mix.curriculum.difficulty": ["noise"], "mix.curriculum.competence": "step"},
    "labelled": {"pack.labels": True, "pack.strategy": "greedy"},
}


def write_texts(folder: Path) -> None:
    """Write two sources: 800 tales in two files, and 400 notes."""
    (folder / "tales").mkdir(parents=True, exist_ok=True)
    state = 1

    def draw(number: int) -> int:
        nonlocal state
        state = state * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF
        return (state >> 33) % number

    words = ["".join(_LETTERS[draw(len(_LETTERS))] for _ in range(1 + draw(5))) for _ in range(120)]
    for part in range(2):
        rows = [" ".join(words[draw(1 + draw(120))] for _ in range(5 + draw(60))) for _ in range(400)]
        lines = "".join(json.dumps({"text": f"{row}."}, ensure_ascii=False) + "\n" for row in rows)
        (folder / "tales" / f"{part}.jsonl").write_text(lines, encoding="utf-8")
    notes = "".join(f"note {k}: {words[draw(30)]} {k * k} × {draw(90)}\n" for k in range(400))
    (folder / "notes.txt").write_text(notes, encoding="utf-8")
    (folder / "all.toml").write_text(PROFILE, encoding="utf-8")


def wanted(everything: bool) -> Iterator[Overrides]:
    """Yield the settings of each run."""
    written = {"pack.formats": list(get_args(PackedFormat))}
    if not everything:
        for family, strategy in (("unigram", "best_fit"), ("wordpiece", "greedy")):
            yield {**written, "train.family": family, "pack.strategy": strategy}
        return
    for family, strategy in product(FAMILIES, get_args(Strategy)):
        yield {**written, "train.family": family, "pack.strategy": strategy}
    for changes in _VARIANTS.values():
        yield {**written, "train.allow_smaller": True, **changes}


def held(store: Store) -> dict[str, dict[str, str]]:
    """Return for each artifact, by kind and fingerprint, what its files hold, and what its record says."""
    found = {}
    for path in sorted(store.root.glob("*/*/record.json")):
        record = json.loads(path.read_bytes())
        files = {each["path"]: each.get("values_digest") or each["digest"] for each in record["files"]}
        said = {"metrics": record["metrics"], "accounts": record["accounts"]}
        files["(record)"] = json.dumps(said, sort_keys=True)
        found[f"{record['kind']}/{record['fingerprint']}"] = files | {"(content)": record["content_digest"]}
    return found


def main() -> None:
    """Make everything and print it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    write_texts(given.folder)
    store = given.folder / "store"
    for overrides in wanted(given.all):
        sys.stderr.write(f"{overrides}\n")
        api.run(
            given.folder / "all.toml", overrides=overrides, store=store, prefect=False, workers=given.workers
        )
    sys.stdout.write(json.dumps(held(Store.open(store))))


if __name__ == "__main__":
    main()
