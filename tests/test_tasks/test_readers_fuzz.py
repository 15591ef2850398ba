"""Damaged files of every format and compression: only our own errors, quarantine, and accounts that add up.

`TOKMILL_FUZZ_SECONDS=600 python -m pytest -n0 tests/test_tasks/test_readers_fuzz.py` runs for ten minutes.
Every round has a seed, which a failure reports: `TOKMILL_FUZZ_SEED=…` starts with that round.
"""

import os
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.effort import fuzz_seconds
from tests.test_tasks.reading import COMPRESSORS, Read, ingested, read, written
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.formats.text.content import Span, damage_of
from tokmill.tasks.formats.text.shards import read_shard

SECONDS = fuzz_seconds(3)
FIRST_SEED = int(os.environ.get("TOKMILL_FUZZ_SEED", "0"))

KINDS = (".txt", ".lines", ".delimited", ".jsonl", ".json", ".csv", ".py", ".parquet", ".arrow", ".stream")
OPTIONS: dict[str, dict[str, Any]] = {
    ".lines": {"format": "lines"},
    ".delimited": {"format": "delimited", "delimiter": "ab"},
    ".py": {"format": "prose"},
    ".stream": {"format": "arrow"},
}


def random_texts(dice: random.Random) -> list[str]:
    alphabet = dice.choice(["ab", "ab \n", 'a"\\,\n\r', "aé中😀\n", "x"])
    length = dice.choice([3, 40, 3000])
    return ["".join(dice.choices(alphabet, k=dice.randrange(length))) for _ in range(dice.randrange(1, 60))]


def content(kind: str, texts: list[str], dice: random.Random) -> bytes:
    if kind == ".py":
        return "".join(f"def f{number}():\n    {text!r}\n" for number, text in enumerate(texts)).encode()
    text_type = dice.choice(
        [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]
    )
    compressions = ["snappy", "zstd", "gzip", "none"] if kind == ".parquet" else [None, "lz4", "zstd"]
    how = {"text_type": text_type, "compression": dice.choice(compressions), "rows": dice.choice([7, 1000])}
    return written(kind[1:], texts, delimiter="ab", **how)


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Flip bits, truncate, repeat a part, or overwrite a part with zeros or noise."""
    changed = bytearray(data)
    for _ in range(dice.choice([0, 1, 1, 2, 8])):
        at = dice.randrange(len(changed) + 1)
        how = dice.randrange(6)
        if how == 0:
            del changed[at:]
        elif how == 1:
            changed[at:at] = changed[at : at + dice.randrange(200)]
        elif how == 2:
            changed[at : at + 8] = dice.choice(
                [bytes(8), b"\xff" * 8, b"\xff\xff\xff\x7f", dice.randbytes(4)]
            )
        elif changed:
            changed[at % len(changed)] ^= 1 << dice.randrange(8)
    return bytes(changed)


def looked_at(path: Path, options: dict[str, Any]) -> Read | str:
    try:
        return read(path, **options)
    except (TaskError, MemoryError) as error:
        return str(error)


def check(folder: Path, path: Path, options: dict[str, Any]) -> None:
    """Read a file twice and ingest it; the results must agree."""
    found = looked_at(path, options)
    assert looked_at(path, options) == found
    if damage := damage_of(path):
        found = looked_at(path, options | {"span": Span(sound_bytes=damage.sound_bytes)})
    if isinstance(found, str):
        return
    for text in found.texts:
        text.decode("utf-8")
        assert len(text) <= options["max_document_bytes"]
    rows = sorted([*(row for row, _ in found.documents), *(row for row, _ in found.bad)])
    assert rows == sorted(set(rows))
    made = ingested(folder, {"s": {"files": [path.name], "on_error": "quarantine", **options}})
    account, stats = made.outcome.accounts[0], made.corpus.source_stats("s")
    assert account.balanced
    assert account.num_in == len(found.documents) + len(found.bad)
    assert stats.num_documents == len(found.documents)
    shards = [batch for shard in made.corpus.shards("s") for batch in read_shard(shard, made.roots)]
    assert [text for batch in shards for text in batch.documents()] == found.texts


@pytest.mark.slow
def test_damaged_files(tmp_path: Path) -> None:
    deadline, seed = time.monotonic() + SECONDS, FIRST_SEED
    while time.monotonic() < deadline or seed < FIRST_SEED + 2 * len(KINDS):
        dice = random.Random(seed)
        kind, codec = KINDS[seed % len(KINDS)], dice.choice(["", "", *COMPRESSORS])
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = folder / f"file{kind}{codec}"
        inside = content(kind, random_texts(dice), dice)
        path.write_bytes(damaged(COMPRESSORS[codec](damaged(inside, dice)), dice))
        limit = dice.choice([1, 100, 1 << 20])
        options = {"max_document_bytes": limit, **OPTIONS.get(kind, {})}
        if kind in (".jsonl", ".json", ".csv", ".parquet", ".arrow", ".stream") and dice.random() < 0.5:
            options["id_column"] = "id"
        try:
            check(folder, path, options)
        except Exception as error:
            error.add_note(f"TOKMILL_FUZZ_SEED={seed}: {path}")
            raise
        seed += 1
