"""`tokmill.encode`: columns of text as columns of token ids."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from tokmill.flows.library.api import AnyStore
from tokmill.flows.library.artifact import Artifact, figures_of
from tokmill.flows.library.bench import Bench, parted
from tokmill.flows.library.columns import OnError
from tokmill.flows.library.options import EncodeOptions, HoldoutOptions
from tokmill.flows.library.table import require
from tokmill.flows.library.training import bench_for
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Ids = NDArray[np.uint16] | NDArray[np.uint32]


class EncodedColumn:
    """The token ids of a column, row for row; memory-mapped.

    A row that was left out (null and quarantined, held out, or with fewer than `min_tokens` tokens, such as
    an empty text) has no ids, and is null in Arrow. `column[row]` is a row's ids, `len(column)` the number of
    rows.

    Attributes:
        artifact: the encoding that the column is of.
        source: its name there.
        bench: the profile that made it; None for an opened artifact.
    """

    def __init__(self, artifact: Artifact, source: str, bench: Bench | None) -> None:
        self.artifact = artifact
        self.source = source
        self.bench = bench

    @cached_property
    def shards(self) -> list[EncodedShard]:
        """The encoded shards, in order."""
        refs, sources = self.artifact.record.refs("shards"), self._encoded.manifest.sources
        own = [entry.source == self.source for entry in sources for _ in entry.shards]
        store = self.artifact.store
        return [EncodedShard.open(store.path(ref)) for ref, is_own in zip(refs, own, strict=True) if is_own]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of each document that has ids: int64 [num_documents].

        Of a source of several files, documents are numbered without those that were left out.
        """
        if self._num_files > 1:
            return np.arange(len(self), dtype=np.int64)
        rows = [
            self._corpus.locate(self.source, index, shard.ordinals)[2]
            for index, shard in enumerate(self.shards)
            if shard.num_documents
        ]
        return np.concatenate([np.zeros(0, np.int64), *rows])

    @cached_property
    def ids(self) -> Ids:
        """The ids of all rows, one behind the other: uint16 or uint32 [num_tokens]."""
        tokens = [shard.tokens for shard in self.shards]
        return tokens[0] if len(tokens) == 1 else np.concatenate(tokens)

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Row r is `ids[offsets[r]:offsets[r + 1]]`: int64 [num_rows + 1]."""
        lengths = np.zeros(len(self), np.int64)
        lengths[self.rows] = np.concatenate([np.diff(shard.offsets) for shard in self.shards])
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows, those at the ends of documents included."""
        return sum(shard.num_tokens for shard in self.shards)

    @property
    def figures(self) -> Mapping[str, int]:
        """Documents, tokens, bytes and characters of the column, and what was dropped."""
        figures: Mapping[str, int] = self._encoded.source(self.source).statistics.model_dump()
        return figures

    def arrow(self) -> "pa.LargeListArray":
        """Return the column as Arrow's large list of uint16 or uint32; the ids are not copied."""
        import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

        left_out = np.ones(len(self), dtype=np.bool_)
        left_out[self.rows] = False
        mask = pa.array(left_out) if left_out.any() else None
        return pa.LargeListArray.from_arrays(pa.array(self.offsets), pa.array(self.ids), mask=mask)

    def to_pandas(self) -> "pd.Series":
        """Return the column as a Series of arrays, None where a row was left out; the index counts rows.

        Raises:
            UsageError: pandas is not installed.
        """
        require("pandas")
        return self.arrow().to_pandas()

    def __len__(self) -> int:
        return self._num_rows

    @overload
    def __getitem__(self, row: SupportsIndex) -> Ids: ...
    @overload
    def __getitem__(self, row: slice) -> list[Ids]: ...
    def __getitem__(self, row: SupportsIndex | slice) -> Ids | list[Ids]:
        """Return the ids of a row, or a list of those of several."""
        if isinstance(row, slice):
            return [self[place] for place in range(*row.indices(len(self)))]
        try:
            wanted = range(len(self))[row]
        except IndexError as error:
            raise IndexError(f"there is no row {row}; the column has {len(self):,}") from error
        return self.ids[self.offsets[wanted] : self.offsets[wanted + 1]]

    def __repr__(self) -> str:
        return f"EncodedColumn({self.source!r}, {len(self):,} rows, {self.num_tokens:,} tokens)"

    def _repr_html_(self) -> str:
        figures = {name: value for name, value in self.figures.items() if value}
        first = {f"row {row}": str(self[row].tolist()[:24]) for row in range(min(3, len(self)))}
        return figures_of(f"Encoded column {self.source}", figures, **first)

    @cached_property
    def _encoded(self) -> Encoded:
        return Encoded.open(self.artifact.path)

    @cached_property
    def _corpus(self) -> Corpus:
        (ref,) = self.artifact.record.refs("corpus")
        return Corpus.open(self.artifact.store.path(ref))

    @cached_property
    def _num_rows(self) -> int:
        """Rows of the source's file, blank lines among them; those of a part of a corpus are the same."""
        if self._num_files > 1:
            return sum(shard.num_documents for shard in self.shards)
        shards, left_out = self._corpus.shards(self.source), self._corpus.table("quarantine").to_pylist()
        ends = [segment.first_row + segment.num_rows for shard in shards for segment in shard.segments]
        left_out_ends = [bad["row"] + 1 for bad in left_out if bad["source"] == self.source]
        return int(max([0, *ends, *left_out_ends]))

    @property
    def _num_files(self) -> int:
        return self._corpus.source_stats(self.source).num_files


def columns_of(artifact: Artifact, bench: Bench | None = None) -> dict[str, EncodedColumn]:
    """Return the columns of an encoding by source."""
    return {source: EncodedColumn(artifact, source, bench) for source in Encoded.open(artifact.path).sources}


def encode(
    tok: Tokenizer | str | Path,
    texts: Any = None,
    *,
    store: AnyStore | None = None,
    name: str | None = None,
    on_error: OnError = "fail",
    workers: int | None = None,
    progress: bool | None = None,
    holdout: float | HoldoutOptions | None = None,
    **options: Unpack[EncodeOptions],
) -> Any:
    """Encode a column of texts, or several sources, as the pipeline does: by all cores, in bounded memory.

        ids = tokmill.encode(tok, df["text"])
        ids[0], ids.ids, ids.offsets, ids.arrow()
        encoded = tokmill.encode(tok, {"web": web["text"], "code": code["text"]})

    `Tokenizer.encode_batch` is the algorithm alone, in memory, without the token that ends documents.

    Args:
        tok: a tokenizer, the path of one, or the name of an artifact (`tokenizer/quickstart`).
        texts: a column, or source → column; by default what `tok` was trained on by `tokmill.train`.
        store: see `train`; by default where `tok` was trained.
        name: see `train`; by default that of the training.
        on_error: see `train`.
        workers: see `train`.
        progress: see `run`.
        holdout: see `train`; by default as `tok` was trained.
        **options: parameters of encoding: `end_of_document` (`<|endoftext|>` by default; None for none),
            `begin_of_document`, `min_tokens`, `special_tokens_in_text`, `fim_rate`, ….

    Returns:
        An `EncodedColumn` for a column, and source → `EncodedColumn` for several sources.

    Raises:
        UsageError: a column is none, has a null row, or there is no such parameter.
        ProfileError: a parameter is invalid.
        RunError: a stage failed, e.g. since the vocabulary lacks `end_of_document`.
    """
    (params,) = parted("encode", options, EncodeParams)
    if isinstance(tok, Tokenizer) and not tok.special_tokens:
        params.setdefault("end_of_document", None)
    bench = bench_for(tok, texts, store=store, name=name, on_error=on_error, holdout=holdout)
    bench = bench.with_sections(encode=params)
    columns = columns_of(bench.made("encoded", workers=workers, progress=progress), bench)
    alone = set(columns) == {"text"} and not isinstance(texts, Mapping)
    return columns["text"] if alone else columns
