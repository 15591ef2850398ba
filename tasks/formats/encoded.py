"""Encoded text on disk: one directory per shard, and a manifest of the shards.

docs/formats.md lists the files. A shard does not name its source, so that two sources with the same shard
share its encoding. A list of shard directories that is passed along with a manifest is in the manifest's
order: by source, then index. Scores measure documents: one directory per shard and measure, with a float32
per document and component, in the order of the encoded shard; NaN stands for a document without a number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.arrays import NpyAppender, open_vector
from tokmill.tasks.formats.files.indices import check_ascending, check_within
from tokmill.tasks.formats.files.manifests import Entry, Manifest
from tokmill.tasks.store.verify import check_files

TokenDtype = Literal["uint16", "uint32"]
COLUMN = "column:"
COMPONENTS = {
    "noise": ("symbols", "repetition", "compression", "decoding_errors"),
    "perplexity": ("surprisal",),
}


def token_dtype(vocab_size: int) -> TokenDtype:
    """The narrowest of the two stored widths that holds every id in [0, vocab_size)."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


class EncodedStatistics(Manifest):
    """Statistics of an encoded shard: kept and dropped documents."""

    FILE: ClassVar[str] = "statistics.json"
    TITLE: ClassVar[str] = "statistics of an encoded shard"

    num_documents: int = 0  # kept documents
    num_tokens: int = 0  # values in tokens.npy, including end tokens
    num_begin_tokens: int = 0  # begin-of-document tokens among them; 0 or `num_documents`
    num_end_tokens: int = 0  # end-of-document tokens among them; 0 or `num_documents`
    num_fim_tokens: int = 0  # tokens among them that rearranging added; see `tasks.fim.rearrangement`
    num_bytes: int = 0  # of the kept documents' text as it was read, before normalization
    num_chars: int = 0
    num_words: int = 0  # longest runs of characters other than white space
    num_dropped_documents: int = 0  # documents with fewer tokens of text than `min_tokens`
    num_dropped_tokens: int = 0  # their tokens of text
    num_dropped_bytes: int = 0  # their bytes of text

    @property
    def num_text_tokens(self) -> int:
        """Tokens of the text, without those added before, after or between."""
        return self.num_tokens - self.num_begin_tokens - self.num_end_tokens - self.num_fim_tokens

    def __add__(self, other: "EncodedStatistics") -> "EncodedStatistics":
        mine, its = self.model_dump(), other.model_dump()
        return EncodedStatistics(**{name: mine[name] + its[name] for name in mine})


class ShardEntry(Entry):
    """One shard in the manifest; `digest` is the content digest of its encoded shard."""

    index: int
    digest: str
    num_documents: int
    num_tokens: int


class SourceEntry(Entry):
    """One source in the manifest, with the sums over its shards."""

    source: str
    statistics: EncodedStatistics
    shards: list[ShardEntry]


class EncodedManifest(Manifest):
    """The content of `encoded.json`."""

    FILE: ClassVar[str] = "encoded.json"
    TITLE: ClassVar[str] = "manifest of encoded shards"

    tokenizer: str  # content digest of the tokenizer artifact
    dtype: TokenDtype
    vocab_size: int
    begin_of_document_id: int | None = None  # id of the token before each document, or None
    end_of_document_id: int | None  # id of the token after each document, or None
    sources: list[SourceEntry]


@dataclass(frozen=True)
class EncodedShard:
    """An encoded shard; each array is memory-mapped, and checked, on first use.

    So whoever needs lengths alone neither reads the tokens nor, from object storage, fetches them.
    """

    path: Path  # the shard's directory
    statistics: EncodedStatistics  # statistics of kept and dropped documents

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the shard in the directory `path`."""
        return cls(path, EncodedStatistics.open(path))

    @property
    def num_documents(self) -> int:
        """Number of documents in the shard."""
        return self.statistics.num_documents

    @property
    def num_tokens(self) -> int:
        """Number of tokens in the shard, including end tokens."""
        return self.statistics.num_tokens

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """Token ids: uint16 | uint32 [t]."""
        return self._opened("tokens", np.uint16, np.uint32, length=self.num_tokens)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where the documents begin in the tokens, and where the last one ends: int64 [d + 1]."""
        found = self._opened("offsets", np.int64, length=self.num_documents + 1)
        check_ascending(self.path / "offsets.npy", "offsets", found, first=0, last=self.num_tokens)
        return found

    @cached_property
    def ordinals(self) -> NDArray[np.int64]:
        """The documents' ordinals in the corpus shard: int64 [d]."""
        found = self._opened("ordinals", np.int64, length=self.num_documents)
        file = self.path / "ordinals.npy"
        if len(found):
            check_ascending(file, "ordinals", found, first=int(found[0]), last=int(found[-1]), step=1)
            check_within(file, "ordinal", found[:1], least=0, below=1 << 62)
        return found

    @cached_property
    def token_counts(self) -> NDArray[np.uint64]:
        """How often each id is among the tokens: uint64 [vocab_size]."""
        return self._opened("token_counts", np.uint64)

    def document(self, index: int) -> NDArray[Any]:
        """The tokens of document `index` in [0, num_documents), including its end token; a view."""
        view: NDArray[Any] = self.tokens[self.offsets[index] : self.offsets[index + 1]]
        return view

    def _opened(self, name: str, *dtypes: type[np.generic], length: int | None = None) -> NDArray[Any]:
        file = self.path / f"{name}.npy"
        check_files(self.path, [file])
        return open_vector(file, *dtypes, length=length)

    def check_ids(self, vocab_size: int, tokens: NDArray[Any]) -> None:
        """Reject tokens that are not in the vocabulary, before they are used as indices.

        Opening a shard does not call this: users of the lengths alone need not read the tokens.
        """
        check_within(self.path / "tokens.npy", "token", tokens, least=0, below=vocab_size)


@dataclass(frozen=True)
class Encoded:
    """The manifest of an encoded corpus."""

    manifest: EncodedManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest in the directory `path`."""
        return cls(EncodedManifest.open(path))

    @property
    def sources(self) -> list[str]:
        """Names of the sources, in the corpus' order."""
        return [entry.source for entry in self.manifest.sources]

    def source(self, name: str) -> SourceEntry:
        """The manifest's entry of the source `name`."""
        for entry in self.manifest.sources:
            if entry.source == name:
                return entry
        raise StoreError(f"encoded: no source '{name}'; it has {', '.join(self.sources)}")

    def pair(self, shards: Sequence[Path]) -> Iterator[tuple[str, ShardEntry, Path]]:
        """Yield each shard directory with its source and entry; `shards` are in the manifest's order."""
        entries = [(source.source, shard) for source in self.manifest.sources for shard in source.shards]
        if len(entries) != len(shards):
            raise StoreError(
                f"encoded: {len(shards)} shard directories were given and the manifest lists {len(entries)}; "
                "pass the manifest's shards, in its order"
            )
        for (name, entry), path in zip(entries, shards, strict=True):
            yield name, entry, path


def components_of(measure: str) -> tuple[str, ...]:
    """The components of a measure; a column of the source's files has one."""
    return COMPONENTS.get(measure, ("value",))


class ScoreManifest(Manifest):
    """The content of `scores.json`."""

    FILE: ClassVar[str] = "scores.json"
    TITLE: ClassVar[str] = "list of scores"

    measure: str  # "noise", "perplexity", or "column:NAME"
    components: tuple[str, ...]  # names of the files
    num_documents: int  # numbers in each
    num_missing: int  # documents without a number


def write_scores(path: Path, measure: str, scores: dict[str, NDArray[np.float32]]) -> ScoreManifest:
    """Write one shard's scores, by component, into the directory `path`."""
    for component, values in scores.items():
        with NpyAppender(path / f"{component}.npy", np.float32) as file:
            file.append(values)
    values = np.stack(list(scores.values()))
    missing = int(np.count_nonzero(np.isnan(values).any(axis=0)))
    manifest = ScoreManifest(
        measure=measure, components=tuple(scores), num_documents=values.shape[1], num_missing=missing
    )
    manifest.save(path)
    return manifest


@dataclass(frozen=True)
class ScoredShard:
    """The scores of one shard, in a directory."""

    path: Path
    manifest: ScoreManifest

    @classmethod
    def open(cls, path: Path, measure: str) -> Self:
        """Read the manifest in the directory `path`."""
        manifest = ScoreManifest.open(path)
        if manifest.measure != measure:
            raise StoreError(f"{path}: holds scores of '{manifest.measure}', and '{measure}' is needed")
        return cls(path, manifest)

    def component(self, name: str) -> NDArray[np.float32]:
        """One component, memory-mapped: float32 [d]."""
        return open_vector(self.path / f"{name}.npy", np.float32, length=self.manifest.num_documents)
