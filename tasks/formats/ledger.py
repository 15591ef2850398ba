"""A ledger on disk: the documents that a run has consumed of a mixture, so that another can continue it.

Documents are in the order of the encoding that was mixed: by source, shard, and position in the shard. In
another encoding, which may have other sources and further shards, they are found by their shard's digest.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.manifests import Entry, Manifest
from tokmill.tasks.formats.files.npy import open_vector

CONSUMED_FILE = "consumed.npy"
TAKEN_DOWN = (1 << 16) - 1
"""The count of a document that was taken down, and is never drawn again."""


class LedgerShard(Entry):
    """One shard: its content digest, and where its documents are in `consumed.npy`."""

    digest: str
    first: int
    num_documents: int
    num_consumed: int


class LedgerSource(Entry):
    """One source."""

    source: str
    given_tokens: int  # tokens of it that were consumed, including repetitions
    requested_tokens: float  # tokens of it that were requested up to the ledger's position
    shards: list[LedgerShard]


class CutDocument(Entry):
    """A part that was not consumed of a document that was begun."""

    source: str
    digest: str  # content digest of its shard
    document: int  # its position in the shard
    epoch: int  # how often it was drawn before
    start: int  # the part's first token in the document
    num_tokens: int  # the part's tokens


class LedgerManifest(Manifest):
    """The content of `ledger.json`.

    Attributes:
        mixture: content digest of the mixture that was consumed.
        read_tokens: tokens that the run has read, from its very beginning, with those that rearranging added.
        consumed_tokens: the documents' tokens among them.
        position: `consumed_tokens` and the parts in `cuts`, as begun documents count as consumed.
        cuts: what remains of begun documents; they come first in the next mixture.
        sources: the mixture's sources, in its order.
    """

    FILE: ClassVar[str] = "ledger.json"
    TITLE: ClassVar[str] = "ledger"

    mixture: str
    read_tokens: int
    consumed_tokens: int
    position: int
    cuts: tuple[CutDocument, ...]
    sources: list[LedgerSource]


@dataclass(frozen=True)
class Ledger:
    """A ledger in a directory."""

    path: Path
    manifest: LedgerManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the ledger in the directory `path`."""
        return cls(path, LedgerManifest.open(path))

    @cached_property
    def by_source(self) -> dict[str, LedgerSource]:
        """The sources by name."""
        return {entry.source: entry for entry in self.manifest.sources}

    def matched(
        self, source: str, digests: Iterable[str]
    ) -> tuple[list[LedgerShard | None], list[LedgerShard]]:
        """Find the shards of a source by their content digests; equal shards are matched in order."""
        known = self.by_source.get(source)
        left: dict[str, deque[LedgerShard]] = {}
        for shard in known.shards if known else []:
            left.setdefault(shard.digest, deque()).append(shard)
        found = [left[digest].popleft() if left.get(digest) else None for digest in digests]
        return found, [shard for waiting in left.values() for shard in waiting]

    def consumed(self, shard: LedgerShard) -> NDArray[np.uint16]:
        """How often each document of a shard was consumed, memory-mapped: uint16 [d]."""
        counts = open_vector(self.path / CONSUMED_FILE)
        stop = shard.first + shard.num_documents
        if counts.dtype != np.uint16 or len(counts) < stop:
            raise StoreError(
                f"{self.path}: {CONSUMED_FILE} holds {len(counts)} values of {counts.dtype}, and "
                f"{stop} of uint16 are needed; verify the artifact"
            )
        return counts[shard.first : stop]
