"""Damaged artifacts: wrong numbers are found when a file is opened, and never crash the process.

`TOKMILL_FUZZ_SECONDS=600 python -m pytest -n0 tests/test_tasks/test_damaged.py` damages files at random for
ten minutes, in a process of its own; a crash of that process is a failure. A failure reports a seed, and
`TOKMILL_FUZZ_SEED=…` starts with it.
"""

import json
import os
import random
import subprocess
import sys
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.effort import fuzz_seconds
from tests.test_tasks.fabricated import (
    encoded_corpus,
    mix_corpus,
    numbered,
    pack_mixture,
    packed_folder,
    published,
    write_documents,
)
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackedFormat, PackedManifest
from tokmill.tasks.formats.packed.pieces import PackingPlan, pieces_file
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.formats.packed.shard_format import formats_of
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.loading.rows import PackedRows

SECONDS = fuzz_seconds(2)
FIRST_SEED = os.environ.get("TOKMILL_FUZZ_SEED", "0")


@pytest.mark.slow
def test_no_damage_crashes_or_hangs_a_reader(tmp_path, checkout):
    command = [sys.executable, "-m", "tests.test_tasks.damage", str(tmp_path), FIRST_SEED, str(SECONDS)]
    done = subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, timeout=SECONDS + 300, check=False
    )
    seed = (tmp_path / "seed").read_text() if (tmp_path / "seed").exists() else "none"
    assert done.returncode in {0, 1}, f"died at seed {seed} ({done.returncode}): {done.stderr[-2000:]}"
    assert done.stdout, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["found"] == []
    assert said["rounds"] >= 1


def changed(file, place, value):
    values = np.load(file)
    values[place] = value
    np.save(file, values)


@pytest.mark.parametrize(
    ("name", "place", "value", "rule"),
    [
        ("cu_seqlens", 1, 2_000_000_000, "at most 16"),
        ("cu_seqlens", 1, -5, "ascend"),
        ("cu_seqlens", 0, 3, "must be 0 at its beginning"),
        ("cu_offsets", 1, 1 << 60, "at least 1 more"),
        ("cu_offsets", 0, -9, "must go from 0"),
        ("cu_offsets", -1, 3, "must go from 0"),
        ("document_starts", 0, -1, "must be in"),
    ],
)
def test_a_wrong_boundary_is_refused_at_its_place(tmp_path, name, place, value, rule):
    packed = packed_folder(tmp_path)
    file = packed / f"shard-00001.{name}.npy"
    changed(file, place, value)
    # The sizes are unchanged, so opening finds nothing: the shard is checked when it is first read.
    with pytest.raises(StoreError, match=f"{name}.npy: .*{rule}.*verify"):
        list(PackedDataset(packed, fields=["cu_seqlens", "loss_mask"], num_threads=0))
    with pytest.raises(StoreError, match=rule):
        list(PackedReader.open(packed))


@pytest.mark.parametrize(
    ("name", "place", "value"), [("offsets", 1, -1), ("offsets", 1, 1 << 50), ("ordinals", 1, 0)]
)
def test_a_wrong_number_of_an_encoded_shard_is_refused(tmp_path, name, place, value):
    write_documents(tmp_path, [[1, 2, 3], [4], [5, 6]], 256)
    changed(tmp_path / f"{name}.npy", place, value)
    with pytest.raises(StoreError, match=f"{name}.npy: {name} number"):
        getattr(EncodedShard.open(tmp_path), name)


def with_list(file, column, row, change):
    """Write a table of sequences again, with another list in one row."""
    table = pq.read_table(file)
    lists = table.column(column).to_pylist()
    if row is None:  # one that is a single piece
        row = [*map(len, table.column("seq_lengths").to_pylist())].index(1)
    lists[row] = change(lists[row])
    place = table.schema.get_field_index(column)
    field = table.schema.field(place)
    pq.write_table(table.set_column(place, field, pa.array(lists, field.type)), file)


@pytest.mark.parametrize(
    ("column", "change", "rule"),
    [
        ("seq_lengths", lambda old: [0, *old], "length of piece number 0 is 0, and must be"),
        ("seq_lengths", lambda old: [*old, 1], "tokens of sequence number 0 is 17, and must be"),
        ("document_starts", lambda old: [*old, 0, 0], "lengths without a start of sequence number 0"),
        ("document_starts", lambda old: [], "lengths without a start of sequence number 0"),
        ("input_ids", lambda old: old[:-1], "tokens of sequence number 0 is 15, and must be"),
    ],
)
def test_lists_that_do_not_fit_a_sequence_are_refused(tmp_path, column, change, rule):
    packed = packed_folder(tmp_path, formats=("parquet",))
    with_list(packed / "shard-00000.parquet", column, 0, change)
    with pytest.raises(StoreError, match=rule):
        PackedReader.open(packed)[0]


@pytest.mark.parametrize(
    ("column", "value"), [("source", 9), ("fim", 3), ("sequence", 1 << 20), ("length", 0)]
)
def test_a_wrong_piece_is_refused_at_its_place(tmp_path, column, value):
    packed = packed_folder(tmp_path)
    file = pieces_file(packed, 0)
    table = pq.read_table(file)
    place, numbers = table.schema.get_field_index(column), table.column(column).to_pylist()
    field, numbers[0] = table.schema.field(place), value
    pq.write_table(table.set_column(place, field, pa.array(numbers, field.type)), file)
    with pytest.raises(StoreError, match=f"of piece number 0 is {value}, and must be in"):
        PackedReader.open(packed).provenance(0)


def test_a_sequence_without_its_starts_is_refused_if_the_pieces_are_known(tmp_path):
    """A single length, of the whole sequence, could be padding: a takedown may leave such sequences."""
    packed = packed_folder(tmp_path, formats=("parquet",))
    with_list(packed / "shard-00001.parquet", "document_starts", None, lambda old: [])
    with pytest.raises(StoreError, match="has 0 pieces, and 1 in the table of pieces"):
        list(PackedReader.open(packed).at_length(32))


def flipped(file, number, dice):
    """Flip single bits of a file, one after the other, at random places; yields after each."""
    data = file.read_bytes()
    for bit in dice.sample(range(8 * len(data)), min(number, 8 * len(data))):
        other = bytearray(data)
        other[bit // 8] ^= 1 << bit % 8
        file.write_bytes(other)
        yield
    file.write_bytes(data)


FORMATS = get_args(PackedFormat)


@pytest.fixture(scope="module")
def published_packing(tmp_path_factory):
    """A packed artifact with a record, in every format; not to be changed for good."""
    folder = tmp_path_factory.mktemp("published")
    return published(packed_folder(folder, formats=FORMATS), folder / "store")


def everything_of(reader, row):
    return reader[row], reader.provenance(row)


@pytest.mark.parametrize("kind", FORMATS)
def test_no_flipped_bit_of_a_packed_shard_passes(published_packing, kind):
    manifest = PackedManifest.open(published_packing).model_copy(update={"formats": (kind,)})
    dice, pieces = random.Random(kind), pieces_file(published_packing, 1)
    row = manifest.shards[0].num_sequences
    for file in (*formats_of([kind])[0].paths(published_packing, 1), pieces):
        for _ in flipped(file, 60, dice):
            with pytest.raises(StoreError, match=r"was published with .* changed or damaged"):
                everything_of(PackedReader(published_packing, manifest), row)
            if kind in {"memmap", "npy"} and file != pieces:
                rows = PackedRows(published_packing, manifest)
                with pytest.raises(StoreError, match="was published with"):
                    rows.touch(np.array([row]))
    everything_of(PackedReader(published_packing, manifest), row)
    for _ in flipped(published_packing / "packed.json", 10, dice):
        with pytest.raises(StoreError, match="was published with"):
            PackedManifest.open(published_packing)


def test_no_flipped_bit_of_an_encoded_shard_passes(tmp_path):
    (tmp_path / "shard").mkdir()
    write_documents(tmp_path / "shard", [[1, 2, 3], [4], [5, 6] * 40], 256)
    place, dice = published(tmp_path / "shard", tmp_path / "store", "encoded_shard"), random.Random(0)
    for name in ("tokens", "offsets", "ordinals", "token_counts"):
        getattr(EncodedShard.open(place), name)
        for _ in flipped(place / f"{name}.npy", 60, dice):
            with pytest.raises(StoreError, match=rf"{name}\.npy: the file has digest"):
                getattr(EncodedShard.open(place), name)
    for _ in flipped(place / "statistics.json", 60, dice):
        with pytest.raises(StoreError, match="was published with"):
            EncodedShard.open(place)


def test_no_flipped_bit_of_a_plan_passes(tmp_path):
    corpus = encoded_corpus(tmp_path / "corpus", {"a": [numbered(range(1, 40))]})
    pack_mixture(corpus, mix_corpus(corpus, tmp_path), tmp_path, sequence_length=16)
    mixture = published(tmp_path / "mixture", tmp_path / "store", "mixture")
    plan = published(tmp_path / "plan", tmp_path / "store", "pack_plan")
    for file, read in (
        (mixture / "plan.parquet", lambda: list(Mixture.open(mixture).batches())),
        (mixture / "mixture.json", lambda: Mixture.open(mixture)),
        (mixture / "request.parquet", lambda: Mixture.open(mixture).request()),
        (mixture / "shares.parquet", lambda: Mixture.open(mixture).shares()),
        (plan / "packing.json", lambda: PackingPlan.open(plan)),
        (plan / "pieces.parquet", lambda: PackingPlan.open(plan).pieces(0)),
    ):
        read()
        for _ in flipped(file, 60, random.Random(0)):
            with pytest.raises(StoreError, match="was published with"):
                read()
