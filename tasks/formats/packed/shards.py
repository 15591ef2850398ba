"""Read single packed shards: the tokens, boundaries and pieces of sequences."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.files.indices import check_pieces
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.files.parquet import read_parquet
from tokmill.tasks.formats.packed.layout import PROVENANCE_SCHEMA, PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.plan import piece_columns
from tokmill.tasks.formats.packed.shard_format import ShardReader, format_of
from tokmill.tasks.store.verify import check_files

__all__ = ["PieceRows", "ShardReader", "open_shard"]


def open_shard(folder: Path, index: int, manifest: PackedManifest) -> ShardReader:
    """Open shard `index` in the fastest of its formats.

    Raises:
        StoreError: a file is missing, broken or damaged, or does not match the manifest.
    """
    fastest = min(map(format_of, manifest.formats), key=lambda known: known.reading_order)
    files = ShardFiles(folder, index)
    check_files(folder, fastest.files(files))
    return fastest.open(files, manifest)


@dataclass(frozen=True)
class PieceRows:
    """The table of pieces of a shard: its columns, and the first row of each sequence."""

    columns: dict[str, NDArray[Any]]
    firsts: NDArray[np.int64]

    @classmethod
    def open(cls, files: ShardFiles, manifest: PackedManifest) -> "PieceRows":
        """Read the file.

        Raises:
            StoreError: it is missing, damaged, is not Parquet, or its rows are not the pieces of the shard.
        """
        check_files(files.folder, [files.pieces])
        with readable(files.pieces, "table of pieces"):
            table = read_parquet(files.pieces)
        columns = piece_columns(files.pieces, table, PROVENANCE_SCHEMA)
        entry = next(entry for entry in manifest.shards if entry.index == files.index)
        sequences = range(entry.first_sequence, entry.first_sequence + entry.num_sequences)
        check_pieces(files.pieces, columns, sequences, manifest.sequence_length, len(manifest.sources))
        return cls(
            columns, np.searchsorted(columns["sequence"], np.arange(sequences.start, sequences.stop + 1))
        )

    def rows(self, row: int) -> list[dict[str, int]]:
        """The pieces of the shard's sequence `row`, in order."""
        first, stop = int(self.firsts[row]), int(self.firsts[row + 1])
        names = list(self.columns)
        values = zip(*(self.columns[name][first:stop].tolist() for name in names), strict=True)
        return [dict(zip(names, row_values, strict=True)) for row_values in values]

    def value(self, name: str, row: int) -> NDArray[Any]:
        """The values of column `name` for the pieces of the shard's sequence `row`, in order."""
        return self.columns[name][int(self.firsts[row]) : int(self.firsts[row + 1])]
