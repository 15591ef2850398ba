"""The formats of packed shards, in one table.

A format's module has `write_NAME(paths, shape)`, a context manager that yields what writes blocks of
sequences, and `open_NAME(paths, manifest, index)`, which returns a `PackedShard`; `paths` are the format's
files of a shard. Some have `write_NAME_folder(folder, manifest)`, for files that exist once per folder.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_ascending, check_within
from tokmill.tasks.formats.packed.manifest import PackedFormat, PackedManifest
from tokmill.tasks.formats.packed.pieces import pieces_file
from tokmill.tasks.store.verify import check_files

_GROUP_TOKENS = 1 << 20
IGNORED_LABEL = -100
"""The label of a token whose prediction does not count, as in PyTorch's loss and Hugging Face's trainers."""
_BOUNDARIES = ("shard-{}.cu_seqlens.npy", "shard-{}.cu_offsets.npy", "shard-{}.document_starts.npy")
_LABELS = ("label_mask-{}.bin",)


@dataclass(frozen=True)
class ShardFormat:
    """One format, and its functions, which are imported on first use."""

    name: PackedFormat
    module: str  # in this folder
    names: tuple[str, ...]  # its files of a shard, {} being its number; the first are what `datasets` reads
    hub_order: int  # which of several formats `datasets` is led to: the lowest, the one that it reads best
    tokens_only: bool = False  # boundaries, and the mask of labels, are in files that such formats share
    in_folder: bool = False  # there are files once per folder of shards

    @property
    def pattern(self) -> str:
        """Matches the data files of a folder, as the README for `datasets` names them."""
        return self.names[0].format("*")

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of the format's module; {} in its name is the format's."""
        module = import_module(f"{__package__}.{self.module}")
        return getattr(module, function.format(self.name))(*arguments)

    def paths(self, folder: Path, index: int, *, labels: bool = False) -> list[Path]:
        """The files of shard `index` that are read; with those of labels if they are wanted."""
        beside = (*_BOUNDARIES, *(_LABELS if labels else ())) if self.tokens_only else ()
        return paths_of(folder, index, (*self.names, *beside))


FORMATS = (  # in the order in which they are read, where there are several: the fastest first
    ShardFormat("memmap", "memmap", ("shard-{}.bin",), 4, tokens_only=True),
    ShardFormat("npy", "memmap", ("tokens-{}.npy",), 5, tokens_only=True),
    ShardFormat("mds", "mds", ("shard.{}.mds",), 3, in_folder=True),
    ShardFormat("arrow", "columnar", ("shard-{}.arrow",), 1, in_folder=True),
    ShardFormat("megatron", "megatron", ("megatron-{}.bin", "megatron-{}.idx"), 6),
    ShardFormat("parquet", "columnar", ("shard-{}.parquet",), 0),
    ShardFormat("jsonl", "columnar", ("shard-{}.jsonl.zst",), 2),
)


def paths_of(folder: Path, index: int, names: Sequence[str]) -> list[Path]:
    """The files of shard `index` with these names."""
    return [folder / name.format(f"{index:05d}") for name in names]


def formats_of(names: Sequence[PackedFormat]) -> list[ShardFormat]:
    """The formats of these names, those that read fastest first."""
    return [known for known in FORMATS if known.name in names]


@dataclass(frozen=True)
class SequenceBlock:
    """n sequences of L tokens that hold p pieces."""

    rows: NDArray[Any]  # uint16 | uint32 [n, L], tokens and padding
    firsts: NDArray[np.int64]  # int64 [n + 1]; sequence i has the pieces [firsts[i], firsts[i + 1])
    lengths: NDArray[np.int64]  # int64 [p], tokens of each piece; the first begins with the sequence
    document_starts: NDArray[np.int64]  # int64 [p], token of its document at which each piece starts

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> "SequenceBlock":
        """Sequences [start, stop), as views."""
        first, last = int(self.firsts[start]), int(self.firsts[stop])
        firsts = self.firsts[start : stop + 1] - first
        return SequenceBlock(
            self.rows[start:stop], firsts, self.lengths[first:last], self.document_starts[first:last]
        )

    @property
    def num_tokens(self) -> NDArray[np.int64]:
        """Tokens of each sequence, without padding: int64 [n]."""
        return sums_of(self.firsts, self.lengths)

    @property
    def is_token(self) -> NDArray[np.bool_]:
        """Which tokens are not padding: bool [n, L]."""
        return np.asarray(np.arange(self.rows.shape[1]) < self.num_tokens[:, None])

    def per_token(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
        """`position_ids` int32, `segment_ids` int32 and `loss_mask` bool, each [n × L]; see the reader."""
        positions, segments = np.zeros((2, *self.rows.shape), dtype=np.int32)
        is_token, begins = self.is_token, np.cumsum(self.lengths) - self.lengths
        positions[is_token] = np.arange(self.lengths.sum()) - np.repeat(begins, self.lengths)
        nth = np.arange(1, len(self.lengths) + 1) - np.repeat(self.firsts[:-1], np.diff(self.firsts))
        segments[is_token] = np.repeat(nth, self.lengths)
        return positions.reshape(-1), segments.reshape(-1), positions.reshape(-1) > 0

    @property
    def with_padding(self) -> "Lists":
        """For each sequence the lengths of its pieces and of its padding, which add up to L."""
        padding = self.rows.shape[1] - self.num_tokens
        lengths = np.insert(self.lengths, self.firsts[1:][padding > 0], padding[padding > 0])
        return self.firsts + np.concatenate([[0], np.cumsum(padding > 0)]), lengths


Lists: TypeAlias = tuple[NDArray[np.int64], NDArray[Any]]
"""A list per sequence: int64 [n + 1], where each begins among the values; and all values."""


def sums_of(firsts: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.int64]:
    """The sum of each list: int64 [n]."""
    sums = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return np.asarray(sums[firsts[1:]] - sums[firsts[:-1]])


def bounds_of(firsts: NDArray[np.int64], lengths: NDArray[Any]) -> Lists:
    """`cu_seqlens` of each sequence, one after the other: for each a 0, then the ends of its pieces."""
    num_pieces, sums = np.diff(firsts), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    bounds = np.zeros(len(lengths) + len(num_pieces), dtype=np.int32)
    places = np.arange(len(lengths)) + np.repeat(np.arange(1, len(num_pieces) + 1), num_pieces)
    bounds[places] = sums[1:] - np.repeat(sums[firsts[:-1]], num_pieces)
    return firsts + np.arange(len(firsts)), bounds


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
    writers = [(known, "write_{}", known.names) for known in chosen]
    if any(known.tokens_only for known in chosen):
        beside = next(known for known in FORMATS if known.tokens_only)
        writers.append((beside, "write_boundaries", _BOUNDARIES))
        writers += [(beside, "write_label_mask", _LABELS)] if shape.labels else []
    with ExitStack() as stack:
        appends: list[Append] = []
        for known, function, names in writers:
            writer: AbstractContextManager[Append] = known.call(
                function, paths_of(folder, index, names), shape
            )
            appends.append(stack.enter_context(writer))

        def append(block: SequenceBlock) -> None:
            for each in appends:
                each(block)

        yield append


@dataclass(frozen=True, eq=False)
class PackedShard:
    """An open shard of any format."""

    tokens: Callable[[int], NDArray[Any]]  # the tokens of a row with its padding, [L]
    offsets: NDArray[np.int64]  # int64 [n + 1], where each sequence's bounds begin
    bounds: NDArray[np.int32]  # int32 [p + n], as `bounds_of` gives them
    starts: NDArray[np.int64] | None  # int64 [p], starts of pieces in their documents; None if unknown
    rows: Any = None  # all tokens, [n, L], of a format that is mapped as a whole

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """Boundaries of a row's pieces, from 0 to the number of its tokens: int32 [pieces + 1]."""
        return np.asarray(self.bounds[self.offsets[row] : self.offsets[row + 1]])

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """The start of each of a row's pieces in its document: int64 [pieces]."""
        if self.starts is None:
            return None
        # The rows before row i have i bounds that begin a sequence instead of ending a piece.
        return np.asarray(self.starts[self.offsets[row] - row : self.offsets[row + 1] - row - 1])


def bounded_shard(
    file: Path,
    manifest: PackedManifest,
    tokens: Callable[[int], NDArray[Any]],
    lengths: Lists,
    starts: Lists | None = None,
) -> PackedShard:
    """A shard whose lengths of pieces are in memory (else: `check_bounds`), after checking that they fit.

    Args:
        file: the file, for messages.
        manifest: of its artifact.
        tokens: reads the tokens of a row.
        lengths: lengths of pieces; if there are starts, the length of padding follows them.
        starts: starts of pieces in their documents.
    """
    (firsts, values), length = lengths, manifest.sequence_length
    check_ascending(file, "pieces of sequences", firsts, first=0, last=len(values))
    check_within(file, "length of piece", values, least=1, below=length + 1)
    least = 0 if starts is None else length
    check_within(file, "tokens of sequence", sums_of(firsts, values), least=least, below=length + 1)
    if starts is None:
        return PackedShard(tokens, *bounds_of(firsts, values), None)
    num_padded = np.diff(firsts) - np.diff(starts[0])
    check_within(file, "lengths without a start of sequence", num_padded, least=0, below=2)
    kept = np.delete(values, firsts[1:][num_padded > 0] - 1)
    return PackedShard(tokens, *bounds_of(starts[0], kept), starts[1])


def check_rows(file: Path, found: int, expected: int) -> None:
    """Reject a file with another number of sequences."""
    if found != expected:
        raise StoreError(f"{file}: {found} rows must be {expected}, as packed.json says; verify the artifact")


def open_shard(folder: Path, index: int, manifest: PackedManifest, *, verify: bool = True) -> PackedShard:
    """Open shard `index` in the fastest of its formats."""
    fastest = formats_of(manifest.formats)[0]
    paths = fastest.paths(folder, index)
    if verify:
        check_files(folder, paths)
    opened: PackedShard = fastest.call("open_{}", paths, manifest, index)
    return opened


def shard_files(folder: Path, index: int, manifest: PackedManifest) -> list[Path]:
    """All files of a shard in the formats of its packing, each once, and its table of pieces."""
    known = formats_of(manifest.formats)
    paths = [path for one in known for path in one.paths(folder, index, labels=manifest.labels)]
    return [*dict.fromkeys(paths), pieces_file(folder, index)]


def write_folder_files(out: Path, manifest: PackedManifest) -> None:
    """Write `packed.json`, and the files that formats have once per folder, into the folder `out`.

    The header of README.md tells Hugging Face's `datasets` which files are data, even if it cannot read them:
    otherwise `load_dataset(folder)` would load any file that it can read, such as manifests or a record.
    """
    chosen = formats_of(manifest.formats)
    for known in chosen:
        if known.in_folder:
            known.call("write_{}_folder", out, manifest)
    pattern = min(chosen, key=lambda known: known.hub_order).pattern
    header = f'configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: "{pattern}"\n'
    text = (
        f"{manifest.num_sequences:,} packed sequences of {manifest.sequence_length:,} tokens, as "
        f"{', '.join(manifest.formats)}. `packed.json` says how they were packed.\n"
    )
    (out / "README.md").write_text(f"---\n{header}---\n\n{text}", encoding="utf-8")
    manifest.save(out)
