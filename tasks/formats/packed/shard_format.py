"""The formats of packed shards: each module declares one `ShardFormat` for each of its names.

A new format is a module of this folder, called after it and with `FORMATS`, and its name in `PackedFormat`.
`_HOMES` has the modules of formats that are not called after their module.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.packed.block import Append, ShardShape
from tokmill.tasks.formats.packed.layout import PackedFormat, PackedManifest, ShardFiles

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
