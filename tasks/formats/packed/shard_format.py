"""The formats of packed shards: each module declares one `ShardFormat` for each of its names.

A new format is a module of this folder, called after it and with `FORMATS`, and its name in `PackedFormat`.
`_HOMES` has the modules of formats that are not called after their module.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.formats.packed.layout import PROVENANCE_SCHEMA, PackedFormat, PackedManifest, ShardFiles

_GROUP_TOKENS = 1 << 20


@dataclass(frozen=True)
class SequenceBlock:
    """n sequences of L tokens that hold p pieces.

    Attributes:
        rows: uint16 | uint32 [n, L], tokens and padding.
        firsts: int64 [n + 1]; sequence i has the pieces [firsts[i], firsts[i + 1]).
        lengths: int64 [p], tokens of each piece; they follow each other from the start of the sequence.
        document_starts: int64 [p], token of its document at which each piece starts.
    """

    rows: NDArray[Any]
    firsts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    document_starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> "SequenceBlock":
        """Sequences [start, stop), as views."""
        first, last = int(self.firsts[start]), int(self.firsts[stop])
        return SequenceBlock(
            self.rows[start:stop],
            self.firsts[start : stop + 1] - first,
            self.lengths[first:last],
            self.document_starts[first:last],
        )

    @property
    def ends(self) -> NDArray[np.int64]:
        """Token of its sequence at which each piece ends: int64 [p]."""
        sums = np.concatenate([[0], np.cumsum(self.lengths)])
        ends: NDArray[np.int64] = sums[1:] - np.repeat(sums[self.firsts[:-1]], np.diff(self.firsts))
        return ends

    @property
    def places(self) -> NDArray[np.int64]:
        """Flat index in `rows` at which each piece begins: int64 [p]."""
        row = np.repeat(np.arange(len(self)), np.diff(self.firsts))
        places: NDArray[np.int64] = row * self.rows.shape[1] + self.ends - self.lengths
        return places

    def per_token(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
        """`position_ids` int32, `segment_ids` int32 and `loss_mask` bool, each [n × L]; see the reader."""
        within = np.arange(int(self.lengths.sum())) - np.repeat(
            np.cumsum(self.lengths) - self.lengths, self.lengths
        )
        begins = self.places
        tokens = np.repeat(begins, self.lengths) + within
        nth = np.arange(len(self.lengths)) - np.repeat(self.firsts[:-1], np.diff(self.firsts))
        positions, segments = (np.zeros(self.rows.size, dtype=np.int32) for _ in range(2))
        positions[tokens] = within
        segments[tokens] = np.repeat(nth + 1, self.lengths)
        return positions, segments, positions > 0

    @property
    def with_padding(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lengths of pieces and of padding, which add up to the length of each sequence.

        Returns:
            int64 [n + 1], where each sequence's begin among them; int64 [p + padded sequences].
        """
        used = np.bincount(
            np.repeat(np.arange(len(self)), np.diff(self.firsts)), weights=self.lengths, minlength=len(self)
        ).astype(np.int64)
        padding = self.rows.shape[1] - used
        lengths = np.insert(self.lengths, self.firsts[1:][padding > 0], padding[padding > 0])
        return self.firsts + np.concatenate([[0], np.cumsum(padding > 0)]), lengths


@dataclass(frozen=True)
class ShardShape:
    """The properties of a shard that its writer needs before the first sequence.

    Attributes:
        num_sequences: sequences of the shard.
        sequence_length: tokens of each.
        dtype: dtype of the tokens, little-endian.
        labels: whether to write labels and label masks, too.
    """

    num_sequences: int
    sequence_length: int
    dtype: np.dtype[Any]
    labels: bool = False


Append: TypeAlias = Callable[[SequenceBlock], None]
"""Writes the next sequences. Every block but the last has a multiple of `group_rows` sequences."""


def group_rows(sequence_length: int) -> int:
    """Sequences per row group, chosen so that the files do not depend on the size of the blocks."""
    return max(1, _GROUP_TOKENS // sequence_length)


_HOMES: Final[Mapping[PackedFormat, str]] = {"arrow": "columnar", "npy": "memmap", "parquet": "columnar"}


class ShardReader(Protocol):
    """Reads a shard of any format, row by row."""

    def tokens(self, row: int) -> NDArray[Any]:
        """The sequence's tokens with its padding, shape (sequence_length,)."""
        ...

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """Boundaries of its pieces, from 0 to the number of its tokens, shape (pieces + 1,)."""
        ...

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """The start of each of its pieces in its document, shape (pieces,); None if the format lacks them."""
        ...


Writer: TypeAlias = Callable[[ShardFiles, ShardShape], AbstractContextManager[Append]]


@dataclass(frozen=True)
class ShardFormat:
    """One format: how a shard is written and read, and which files it consists of.

    Attributes:
        write: writes a shard's own files.
        open: opens a shard to read it.
        files: the shard's files, without those of `beside_labels`.
        pattern: matches the data files of a folder, as the README for `datasets` names them.
        reading_order: which of several formats is read, the lowest first: those that read fastest.
        hub_order: which of several formats `datasets` is led to, the lowest first.
        beside: writes files that formats may share; each is written once.
        beside_labels: the same if labels are requested, and the files of the labels.
        write_folder: writes the files that the format has once per folder of shards.
    """

    write: Writer
    open: Callable[[ShardFiles, PackedManifest], ShardReader]
    files: Callable[[ShardFiles], list[Path]]
    pattern: str
    reading_order: int
    hub_order: int
    beside: tuple[Writer, ...] = ()
    beside_labels: tuple[tuple[Writer, Callable[[ShardFiles], Path]], ...] = ()
    write_folder: Callable[[Path, PackedManifest], None] | None = None

    def writers(self, labels: bool) -> list[Writer]:
        """All that writes a shard in this format."""
        extra = [writer for writer, _ in self.beside_labels] if labels else []
        return [self.write, *self.beside, *extra]

    def all_files(self, files: ShardFiles, labels: bool) -> list[Path]:
        """All files of a shard in this format."""
        extra = [path(files) for _, path in self.beside_labels] if labels else []
        return [*self.files(files), *extra]


def format_of(name: PackedFormat) -> ShardFormat:
    """The format of a name; its module is imported on first use."""
    module = import_module(f"{__package__}.{_HOMES.get(name, name)}")
    found: ShardFormat = module.FORMATS[name]
    return found


@contextmanager
def write_sequences(
    files: ShardFiles, shape: ShardShape, formats: Sequence[PackedFormat]
) -> Iterator[Append]:
    """A writer of one shard in all of `formats`; the files are whole once the context is left.

    The same sequences give the same bytes, whatever the blocks that they come in, if each block but the last
    has a multiple of `group_rows` sequences.
    """
    writers = [writer for name in formats for writer in format_of(name).writers(shape.labels)]
    with ExitStack() as stack:
        appends = [stack.enter_context(writer(files, shape)) for writer in dict.fromkeys(writers)]

        def append(block: SequenceBlock) -> None:
            for each in appends:
                each(block)

        yield append


@contextmanager
def write_pieces(files: ShardFiles) -> Iterator[Callable[[pa.Table], None]]:
    """A writer of a shard's table of pieces, whose rows come in order."""
    files.pieces.parent.mkdir(exist_ok=True)
    with pq.ParquetWriter(files.pieces, PROVENANCE_SCHEMA, compression="zstd") as writer:
        yield writer.write_table


def shard_files(files: ShardFiles, manifest: PackedManifest) -> list[Path]:
    """All files of a shard in the formats of its packing, each once, and its table of pieces."""
    found = [file for name in manifest.formats for file in format_of(name).all_files(files, manifest.labels)]
    return [*dict.fromkeys(found), files.pieces]


def write_folder_files(out: Path, manifest: PackedManifest) -> None:
    """Write `packed.json`, and the files that the format has once per folder, into the folder `out`."""
    for name in manifest.formats:
        write = format_of(name).write_folder
        if write is not None:
            write(out, manifest)
    _write_dataset_card(out, manifest)
    manifest.save(out)


def _write_dataset_card(out: Path, manifest: PackedManifest) -> None:
    """Write the `README.md` that tells Hugging Face's `datasets` which files of a folder are data.

    Without it `load_dataset(folder)` loads any file that it can read, such as manifests or a record. The
    README's header lists the data files, even if `datasets` cannot read their format, so that the library
    fails instead of loading something else.
    """
    pattern = min(map(format_of, manifest.formats), key=lambda known: known.hub_order).pattern
    lines = [
        "---",
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: train",
        f'    path: "{pattern}"',
        "---",
        "",
        f"{manifest.num_sequences:,} packed sequences of {manifest.sequence_length:,} tokens, as "
        f"{', '.join(manifest.formats)}. `packed.json` says how they were packed.",
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
