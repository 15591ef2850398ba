"""Damages small artifacts, one file at a time, and reads them in every way; only our own errors are allowed.

    python -m tests.test_tasks.damage FOLDER FIRST_SEED SECONDS

Makes a packing in the empty FOLDER, with its encoding, mixture and plan. Every round has a seed, which is
written to FOLDER/seed first, so that it is known if the process crashes. A failure is printed as one line of
JSON, and the exit code is 1.
"""

import json
import random
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.test_tasks.fabricated import encoded_corpus, mix_corpus, numbered, pack_mixture
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.packed.manifest import PackedFormat, PackedManifest
from tokmill.tasks.formats.packed.pieces import PackingPlan
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.packing.export import EXPORT_SHARD, ExportShardParams
from tokmill.tasks.packing.stage import PACK_PLAN, PACK_SHARD, PackParams

FORMATS = get_args(PackedFormat)
FIELDS = ("input_ids", "position_ids", "segment_ids", "loss_mask", "labels", "cu_seqlens", "bounds")
LENGTHS = [5, 40, 2, 9, 17, 30, 3, 3, 21, 8, 1, 1, 64, 11]
PACKING = PackParams(sequence_length=16, strategy="best_fit", sequences_per_shard=7, formats=FORMATS)
EXTREMES = [0, 1, -1, 7, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1]
MOST_BYTES = 16 << 30


class Victim:
    """An encoding, its mixture, a plan of its packing, and the packing in one format each."""

    def __init__(self, folder: Path) -> None:
        documents = {name: [numbered(LENGTHS, 50 * k)] for k, name in enumerate("ab")}
        self.folder = folder
        self.corpus = encoded_corpus(folder / "corpus", documents, end_id=7)
        self.mixture = mix_corpus(self.corpus, folder)
        how = PACKING.model_dump(exclude={"formats", "order"}, exclude_unset=True)
        packings = {name: folder / name for name in FORMATS}
        self.packed = {
            name: pack_mixture(self.corpus, self.mixture, out, formats=(name,), **how)[1]
            for name, out in packings.items()
        }
        self.plan = packings[FORMATS[0]] / "plan"
        self.scratch = 0

    def new_folder(self) -> Path:
        self.scratch += 1
        out = self.folder / f"scratch-{self.scratch}"
        out.mkdir()
        return out

    def targets(self):
        """(file to damage, function that reads it), for every file."""
        for name, path in self.packed.items():
            for file in sorted(found for found in path.rglob("*") if found.is_file()):
                yield file, lambda name=name: self.read(name)
        for shard in self.corpus.shards:
            for file in sorted(shard.iterdir()):
                yield file, self.read_encoded
        for folder in (self.corpus.path, self.mixture):
            for file in sorted(folder.iterdir()):
                yield file, self.plan_again
        for file in sorted(self.plan.iterdir()):
            yield file, self.write_again

    def read(self, name: str) -> None:
        """Read a packing in every possible way."""
        path = self.packed[name]
        reader = PackedReader.open(path)
        for index, sequence in enumerate(reader):
            sequence.segment_ids, sequence.position_ids, sequence.loss_mask  # noqa: B018 - worked out when asked for
            reader.provenance(index)
        for sequence in reader.at_length(32):
            sequence.loss_mask  # noqa: B018
        for shard in PackedManifest.open(path).shards:
            params = ExportShardParams(index=shard.index, formats=("memmap", "megatron", "mds"))
            EXPORT_SHARD.run(params, out=self.new_folder(), packed=path)
        if name in {"memmap", "npy"}:
            with PackedDataset(path, fields=FIELDS, batch_size=4, shuffle=True, num_threads=1) as dataset:
                for _ in dataset:
                    pass

    def read_encoded(self) -> None:
        for path in self.corpus.shards:
            shard = EncodedShard.open(path)
            for document in range(shard.num_documents):
                shard.document(document)
        self.write_again()

    def plan_again(self) -> None:
        PACK_PLAN.run(
            PACKING.plan_params(), out=self.new_folder(), mixture=self.mixture, **self.corpus.inputs
        )

    def write_again(self) -> None:
        for shard in range(PackingPlan.open(self.plan).num_shards):
            asked = PACKING.shard_params(shard)
            PACK_SHARD.run(asked, out=self.new_folder(), plan=self.plan, **self.corpus.inputs)


def damaged(dice: random.Random, file: Path) -> tuple[str, bytes]:
    """The kind of damage, and the file's content after it."""
    data = bytearray(file.read_bytes())
    kind = dice.choice(["bits", "bits", "number", "number", "cut", "longer", "row"])
    if kind == "row" and file.suffix == ".parquet":
        return _other_value(dice, file)
    if kind == "cut":
        return kind, bytes(data[: dice.randrange(len(data) + 1)])
    if kind == "longer":
        return kind, bytes(data) + dice.randbytes(dice.choice([1, 2, 4, 8, 100]))
    if kind == "number" and len(data) > 8:
        width = dice.choice([1, 2, 4, 8])
        at = dice.randrange(len(data) // width) * width
        data[at : at + width] = (dice.choice(EXTREMES) % (1 << 8 * width)).to_bytes(width, "little")
        return f"number at {at}", bytes(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        at = dice.randrange(len(data) or 1)
        data[at : at + 1] = bytes([data[at] ^ 1 << dice.randrange(8)]) if data else b""
    return "bits", bytes(data)


def _other_value(dice: random.Random, file: Path) -> tuple[str, bytes]:
    """Change one number of a table, and write the table again."""
    table = pq.read_table(file)
    name = dice.choice(table.schema.names)
    column = table.schema.get_field_index(name)
    values = table.column(name).to_pylist()
    if not values:
        return "row", file.read_bytes()
    place = dice.randrange(len(values))
    kind, value = table.schema.field(name).type, dice.choice([*EXTREMES, 3, 20])
    if pa.types.is_list(kind):
        other = bool(value) if pa.types.is_boolean(kind.value_type) else value % 100_000
        values[place] = [other, *values[place][1:]] if dice.random() < 0.7 else values[place][:-1]
    elif pa.types.is_integer(kind):
        values[place] = value % (1 << kind.bit_width - 1)
    else:
        values[place] = float(dice.choice([0.0, -1.0, 1e300, float("nan")]))
    sink = pa.BufferOutputStream()
    groups = pq.read_metadata(file)
    changed = table.set_column(column, table.schema.field(name), pa.array(values, kind))
    with pq.ParquetWriter(sink, table.schema) as writer:
        start = 0
        for group in range(groups.num_row_groups):
            rows = groups.row_group(group).num_rows
            writer.write_table(changed.slice(start, rows), row_group_size=max(rows, 1))
            start += rows
    return f"row {place} of {name}", sink.getvalue().to_pybytes()


def one_round(victim: Victim, seed: int) -> str | None:
    """Damage a file, read it, and restore it; return what went wrong, if anything."""
    dice = random.Random(seed)
    file, read = dice.choice(list(victim.targets()))
    before = file.read_bytes()
    how, after = damaged(dice, file)
    file.unlink()  # files that are mapped keep their old content
    file.write_bytes(after)
    try:
        read()
    except TaskError:
        return None
    except Exception:  # any other exception is a failure
        return f"{file.parent.name}/{file.name}, {how}:\n{traceback.format_exc()}"
    finally:
        file.unlink()
        file.write_bytes(before)
    return None


def main(folder: Path, first_seed: int, seconds: float) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    np.seterr(all="ignore")
    victim, until, seed = Victim(folder), time.monotonic() + seconds, first_seed
    found: list[str] = []
    while not found and (seed == first_seed or time.monotonic() < until):
        (folder / "seed").write_text(str(seed))
        said = one_round(victim, seed)
        found += [f"seed {seed}: {said}"] if said else []
        seed += 1
    print(json.dumps({"rounds": seed - first_seed, "found": found}))  # noqa: T201 - for the process that asked
    return len(found)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
