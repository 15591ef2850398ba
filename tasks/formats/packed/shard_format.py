"""The formats of packed shards, in one table.

A format's module has the functions `write_NAME(paths, shape)`, a context manager that yields what writes
blocks of sequences, and `open_NAME(paths, manifest, index)`, which returns a `ShardReader`; `paths` are the
format's files of a shard in the order of the table. Some have `write_NAME_folder(folder, manifest)`, for
files that exist once per folder. A new format is such a module, a row of `FORMATS`, and its name in
`PackedFormat`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_lengths, check_starts
from tokmill.tasks.formats.packed.manifest import PackedFormat, PackedManifest
from tokmill.tasks.formats.packed.pieces import pieces_file
from tokmill.tasks.store.verify import check_files

_GROUP_TOKENS = 1 << 20
IGNORED_LABEL = -100
"""The label of a token whose prediction does not count, as in PyTorch's loss and Hugging Face's trainers."""


@dataclass(frozen=True)
class ShardFormat:
    """One format.

    Attributes:
        module: its module in this folder.
        names: its own files of a shard, with {} for the shard's number; the first are what `datasets` reads.
        hub_order: which of several formats `datasets` is led to, the lowest first.
        tokens_only: whether boundaries, and the mask of labels, are in files beside it, which formats share.
        in_folder: whether there are files once per folder of shards.
    """

    name: PackedFormat
    module: str
    names: tuple[str, ...]
    hub_order: int
    tokens_only: bool = False
    in_folder: bool = False

    @property
    def pattern(self) -> str:
        """Matches the data files of a folder, as the README for `datasets` names them."""
        return self.names[0].format("*")

    def call(self, function: str, *arguments: object) -> Any:
        """Call the function `function` of the format's module, which is imported on first use."""
        module = import_module(f"{__package__}.{self.module}")
        return getattr(module, function.format(self.name))(*arguments)

    def paths(self, folder: Path, index: int) -> list[Path]:
        """The files of shard `index` that are read."""
        return paths_of(folder, index, (*self.names, *(_BOUNDARIES if self.tokens_only else ())))

    def all_paths(self, folder: Path, index: int, labels: bool) -> list[Path]:
        """All files of shard `index`, also those of labels."""
        extra = paths_of(folder, index, _LABELS) if labels and self.tokens_only else []
        return [*self.paths(folder, index), *extra]


_BOUNDARIES = ("shard-{}.cu_seqlens.npy", "shard-{}.cu_offsets.npy", "shard-{}.document_starts.npy")
_LABELS = ("label_mask-{}.bin",)

FORMATS = (  # in the order in which they are read, where there are several: the fastest first
    ShardFormat("memmap", "memmap", ("shard-{}.bin",), 4, tokens_only=True),
    ShardFormat("npy", "memmap", ("tokens-{}.npy",), 5, tokens_only=True),
    ShardFormat("mds", "mds", ("shard.{}.mds",), 3, in_folder=True),
    ShardFormat("arrow", "columnar", ("shard-{}.arrow",), 1, in_folder=True),
    ShardFormat("megatron", "megatron", ("megatron-{}.bin", "megatron-{}.idx"), 6),
    ShardFormat("parquet", "columnar", ("shard-{}.parquet",), 0),
    ShardFormat("jsonl", "jsonl", ("shard-{}.jsonl.zst",), 2),
)
_BESIDE = FORMATS[0]  # its module writes the boundaries that formats of tokens alone share


def paths_of(folder: Path, index: int, names: Sequence[str]) -> list[Path]:
    """The files of shard `index` with these names."""
    return [folder / name.format(f"{index:05d}") for name in names]


def formats_of(names: Sequence[PackedFormat]) -> list[ShardFormat]:
    """The formats of these names, those that read fastest first."""
    return [known for known in FORMATS if known.name in names]


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
    def num_tokens(self) -> NDArray[np.int64]:
        """Tokens of each sequence, without padding: int64 [n]."""
        sums = np.concatenate([[0], np.cumsum(self.lengths)])
        return np.asarray(sums[self.firsts[1:]] - sums[self.firsts[:-1]])

    @property
    def ends(self) -> NDArray[np.int64]:
        """Token of its sequence at which each piece ends: int64 [p]."""
        sums = np.concatenate([[0], np.cumsum(self.lengths)])
        ends: NDArray[np.int64] = sums[1:] - np.repeat(sums[self.firsts[:-1]], np.diff(self.firsts))
        return ends

    def per_token(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
        """`position_ids` int32, `segment_ids` int32 and `loss_mask` bool, each [n × L]; see the reader."""
        num_pieces = np.diff(self.firsts)
        within = np.arange(int(self.lengths.sum())) - np.repeat(
            np.cumsum(self.lengths) - self.lengths, self.lengths
        )
        begins = np.repeat(np.arange(len(self)), num_pieces) * self.rows.shape[1] + self.ends - self.lengths
        tokens = np.repeat(begins, self.lengths) + within
        nth = np.arange(len(self.lengths)) - np.repeat(self.firsts[:-1], num_pieces)
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
        padding = self.rows.shape[1] - self.num_tokens
        lengths = np.insert(self.lengths, self.firsts[1:][padding > 0], padding[padding > 0])
        return self.firsts + np.concatenate([[0], np.cumsum(padding > 0)]), lengths


@dataclass(frozen=True)
class ShardShape:
    """The properties of a shard that its writer needs before the first sequence."""

    num_sequences: int
    sequence_length: int
    dtype: np.dtype[Any]  # dtype of the tokens, little-endian
    labels: bool = False  # whether to write labels and label masks, too


Append: TypeAlias = Callable[[SequenceBlock], None]
"""Writes the next sequences. Every block but the last has a multiple of `group_rows` sequences."""


def group_rows(sequence_length: int) -> int:
    """Sequences per row group, chosen so that the files do not depend on the size of the blocks."""
    return max(1, _GROUP_TOKENS // sequence_length)


def block_ranges(num_sequences: int, sequence_length: int, block_tokens: int) -> Iterator[range]:
    """Yield the rows of a shard in blocks for `write_sequences`, of about `block_tokens` tokens."""
    group = group_rows(sequence_length)
    step = max(1, block_tokens // (group * sequence_length)) * group
    return (range(first, min(first + step, num_sequences)) for first in range(0, num_sequences, step))


@contextmanager
def write_sequences(
    folder: Path, index: int, shape: ShardShape, formats: Sequence[PackedFormat]
) -> Iterator[Append]:
    """A writer of shard `index` in all of `formats`; the files are whole once the context is left.

    The same sequences give the same bytes, whatever the blocks that they come in, if each block but the last
    has a multiple of `group_rows` sequences.
    """
    chosen = formats_of(formats)
    with ExitStack() as stack:

        def started(known: ShardFormat, function: str, names: Sequence[str]) -> Append:
            writer: AbstractContextManager[Append] = known.call(
                function, paths_of(folder, index, names), shape
            )
            return stack.enter_context(writer)

        appends = [started(known, "write_{}", known.names) for known in chosen]
        if any(known.tokens_only for known in chosen):
            appends.append(started(_BESIDE, "write_boundaries", _BOUNDARIES))
            appends += [started(_BESIDE, "write_label_mask", _LABELS)] if shape.labels else []

        def append(block: SequenceBlock) -> None:
            for each in appends:
                each(block)

        yield append


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


class BoundedShard:
    """A shard whose boundaries are in memory.

    Args:
        file: the file, for messages.
        manifest: of its artifact.
        tokens: reads the tokens of a row.
        firsts: int64 [n + 1], where the lengths of each sequence begin.
        lengths: tokens of each piece, and perhaps of padding after them.
        starts: the same for the starts of pieces in their documents; None if the format lacks them.

    Raises:
        StoreError: the pieces do not fit in their sequences.
    """

    def __init__(
        self,
        file: Path,
        manifest: PackedManifest,
        tokens: Callable[[int], NDArray[Any]],
        firsts: NDArray[np.int64],
        lengths: NDArray[Any],
        starts: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> None:
        check_lengths(file, lengths, firsts, manifest.sequence_length)
        if starts is not None:
            check_starts(file, lengths, firsts, np.diff(starts[0]), manifest.sequence_length)
        self.tokens = tokens
        self._firsts = firsts.tolist()  # faster to look up
        self._sums = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._starts = None if starts is None else (starts[0].tolist(), starts[1])

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """The boundaries of the row's pieces."""
        first, stop = self._firsts[row], self._firsts[row + 1]
        if self._starts is not None:  # padding has a length, but no start
            stop = first + self._starts[0][row + 1] - self._starts[0][row]
        sums = self._sums[first : stop + 1]
        bounds: NDArray[np.int32] = (sums - sums[0]).astype(np.int32)
        return bounds

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """The start of each of the row's pieces in its document."""
        if self._starts is None:
            return None
        firsts, starts = self._starts
        return starts[firsts[row] : firsts[row + 1]]


def check_rows(file: Path, found: int, expected: int) -> None:
    """Reject a file with another number of sequences."""
    if found != expected:
        raise StoreError(f"{file}: {found} rows must be {expected}, as packed.json says; verify the artifact")


def open_shard(folder: Path, index: int, manifest: PackedManifest, *, verify: bool = True) -> ShardReader:
    """Open shard `index` in the fastest of its formats.

    Raises:
        StoreError: a file is missing, broken or damaged, or does not match the manifest.
    """
    fastest = formats_of(manifest.formats)[0]
    paths = fastest.paths(folder, index)
    if verify:
        check_files(folder, paths)
    opened: ShardReader = fastest.call("open_{}", paths, manifest, index)
    return opened


def shard_files(folder: Path, index: int, manifest: PackedManifest) -> list[Path]:
    """All files of a shard in the formats of its packing, each once, and its table of pieces."""
    known = formats_of(manifest.formats)
    paths = [path for one in known for path in one.all_paths(folder, index, manifest.labels)]
    return [*dict.fromkeys(paths), pieces_file(folder, index)]


def write_folder_files(out: Path, manifest: PackedManifest) -> None:
    """Write `packed.json`, and the files that formats have once per folder, into the folder `out`."""
    for known in formats_of(manifest.formats):
        if known.in_folder:
            known.call("write_{}_folder", out, manifest)
    _write_dataset_card(out, manifest)
    manifest.save(out)


def _write_dataset_card(out: Path, manifest: PackedManifest) -> None:
    """Write the `README.md` that tells Hugging Face's `datasets` which files of a folder are data.

    Without it `load_dataset(folder)` loads any file that it can read, such as manifests or a record. The
    README's header lists the data files, even if `datasets` cannot read their format, so that the library
    fails instead of loading something else.
    """
    pattern = min(formats_of(manifest.formats), key=lambda known: known.hub_order).pattern
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
