"""Damaged files of every format and compression: only our own errors, quarantine, and accounts that add up.

`TOKMILL_FUZZ_SECONDS=600 python -m pytest -n0 tests/test_tasks/test_readers_fuzz.py` runs for ten minutes.
Every round has a seed, which a failure reports: `TOKMILL_FUZZ_SEED=…` starts with that round.
"""

import io
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.effort import fuzz_seconds
from tests.test_tasks.reading import COMPRESSORS, Read, ingested, read
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.formats.text.content import Span, damage_of
from tokmill.tasks.formats.text.shard import read_shard

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


def columnar(kind: str, texts: list[str], dice: random.Random) -> bytes:
    text = pa.array(texts, dice.choice([pa.string(), pa.large_string(), pa.binary()]))
    table = pa.table(
        {"text": text.dictionary_encode() if dice.random() < 0.3 else text, "id": range(len(texts))}
    )
    out = io.BytesIO()
    if kind == ".parquet":
        compression = dice.choice(["snappy", "zstd", "gzip", "none"])
        pq.write_table(table, out, compression=compression, row_group_size=dice.choice([7, 1000]))
        return out.getvalue()
    options = pa.ipc.IpcWriteOptions(compression=dice.choice([None, "lz4", "zstd"]))
    new = pa.ipc.new_file if kind == ".arrow" else pa.ipc.new_stream
    with new(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=dice.choice([7, 1000]))
    return out.getvalue()


def written(kind: str, texts: list[str], dice: random.Random) -> bytes:
    if kind in (".parquet", ".arrow", ".stream"):
        return columnar(kind, texts, dice)
    if kind == ".jsonl":
        lines = (json.dumps({"text": text, "id": number}) for number, text in enumerate(texts))
        return "".join(f"{line}\n" for line in lines).encode()
    if kind == ".json":
        return json.dumps([{"text": text, "id": number} for number, text in enumerate(texts)]).encode()
    if kind == ".csv":
        quoted = ('"' + text.replace('"', '""') + '"' for text in texts)
        return "".join(["text,id\n", *(f"{text},{number}\n" for number, text in enumerate(quoted))]).encode()
    if kind == ".py":
        return "".join(f"def f{number}():\n    {text!r}\n" for number, text in enumerate(texts)).encode()
    return dice.choice(["\n", "ab"]).join(texts).encode()


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
        inside = written(kind, random_texts(dice), dice)
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
