"""The tables of a vocabulary's use, made by DuckDB in memory and written as Parquet.

Ratios leave out the tokens that were added to the text: those that begin and end documents, and those of
fill-in-the-middle. A ratio whose denominator is 0 is NULL.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.audit.tokens import EXTRAORDINARY
from tokmill.tasks.core.database import database_of_a_stage
from tokmill.tasks.formats.encoded import EncodedStatistics

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES = {
    "vocab_occurrences": """
        SELECT source, token_id, num AS num_occurrences FROM occurrences ORDER BY token_id, source
    """,
    "usage_sources": """
        SELECT source, num_documents, num_tokens, num_text_tokens, num_begin_tokens, num_end_tokens,
            num_fim_tokens, num_bytes, num_chars,
            num_bytes / nullif(num_text_tokens, 0) AS bytes_per_token,
            num_chars / nullif(num_text_tokens, 0) AS chars_per_token,
            coalesce(num_used, 0) AS num_used_tokens,
            coalesce(num_used, 0) / nullif((SELECT count(*) FROM ordinary), 0) AS used_share
        FROM (
            SELECT *, num_tokens - num_begin_tokens - num_end_tokens - num_fim_tokens AS num_text_tokens
            FROM sources
        )
        LEFT JOIN (
            SELECT source, count(*) AS num_used
            FROM occurrences SEMI JOIN ordinary USING (token_id) GROUP BY source
        ) USING (source)
        ORDER BY position
    """,
    "usage_tokens": """
        SELECT token_id, token, readable, kind, num_bytes,
            coalesce(num_occurrences, 0)::UBIGINT AS num_occurrences, coalesce(num_sources, 0) AS num_sources
        FROM vocabulary
        LEFT JOIN (
            SELECT token_id, sum(num) AS num_occurrences, count(*) AS num_sources
            FROM occurrences GROUP BY token_id
        ) USING (token_id)
        ORDER BY token_id
    """,
    "usage_lengths": """
        SELECT num_bytes, count(*) AS num_tokens, count(*) FILTER (num_occurrences = 0) AS num_unused,
            sum(num_occurrences)::UBIGINT AS num_occurrences
        FROM usage_tokens SEMI JOIN ordinary USING (token_id)
        GROUP BY num_bytes ORDER BY num_bytes
    """,
}


_ORDINARY = "CREATE VIEW ordinary AS SELECT token_id FROM vocabulary WHERE ordinary"


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model by id, as the model describes them."""

    tokens: Sequence[bytes]  # bytes of each token
    kinds: Sequence[str]  # kind of each token; see `tokmill.tokenizer.pipeline.model.Model.kinds`
    readable: Callable[[int], str]  # each token as one line of text

    def is_ordinary(self) -> NDArray[np.bool_]:
        """Whether each token stands for text (it is neither special nor reserved): bool [vocab_size]."""
        return np.array([kind not in EXTRAORDINARY for kind in self.kinds], dtype=np.bool_)


@dataclass(frozen=True)
class SourceUse:
    """The statistics of one source, and how often each id occurs in it: uint64 [vocab_size]."""

    statistics: EncodedStatistics
    token_counts: NDArray[np.uint64]


@contextmanager
def usage_database(
    vocabulary: Vocabulary, sources: Mapping[str, SourceUse]
) -> "Iterator[DuckDBPyConnection]":
    """Make an in-memory database of the tables; one thread, so that equal input gives equal files."""
    with database_of_a_stage(threads=1) as database:
        database.register("vocabulary", _vocabulary_table(vocabulary))
        database.register("sources", _sources_table(sources))
        database.register("occurrences", _occurrences_table(sources))
        database.execute(_ORDINARY)
        for name, query in TABLES.items():
            database.execute(f"CREATE TABLE {name} AS {query}")
        yield database


def write_tables(database: "DuckDBPyConnection", folder: Path) -> None:
    """Write each table to `<folder>/<table>.parquet`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        database.table(name).write_parquet(str(folder / f"{name}.parquet"), compression="zstd")


def rows(database: "DuckDBPyConnection", query: str, *values: str | float) -> list[dict[str, Any]]:
    """Return the rows of `query` as dictionaries, in its order."""
    result = database.execute(query, values)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _vocabulary_table(vocabulary: Vocabulary) -> pa.Table:
    ids = [token_id for token_id, kind in enumerate(vocabulary.kinds) if kind != "hole"]
    tokens = [vocabulary.tokens[token_id] for token_id in ids]
    return pa.table(
        {
            "token_id": pa.array(ids, pa.uint32()),
            "token": pa.array(tokens, pa.binary()),
            "readable": pa.array([vocabulary.readable(token_id) for token_id in ids], pa.string()),
            "kind": pa.array([vocabulary.kinds[token_id] for token_id in ids], pa.string()),
            "num_bytes": pa.array([len(token) for token in tokens], pa.int64()),
            "ordinary": pa.array(vocabulary.is_ordinary()[ids], pa.bool_()),
        }
    )


def _sources_table(sources: Mapping[str, SourceUse]) -> pa.Table:
    fields = ["position", *EncodedStatistics.model_fields]
    schema = pa.schema([("source", pa.string()), *((field, pa.int64()) for field in fields)])
    rows = [
        {"position": k, "source": name, **use.statistics.model_dump(include=set(fields))}
        for k, (name, use) in enumerate(sources.items())
    ]
    return pa.Table.from_pylist(rows, schema)


def _occurrences_table(sources: Mapping[str, SourceUse]) -> pa.Table:
    """Return one row for each source and id that occurs in it."""
    schema = pa.schema([("source", pa.string()), ("token_id", pa.uint32()), ("num", pa.uint64())])
    parts = [schema.empty_table()]
    for name, use in sources.items():
        used = np.flatnonzero(use.token_counts)
        columns = [[name] * len(used), used.astype(np.uint32), use.token_counts[used]]
        parts.append(pa.Table.from_arrays(list(map(pa.array, columns)), schema=schema))
    return pa.concat_tables(parts)
