"""audit_shard, audit_counts: measure how a tokenizer encodes a part of a shard, or a part of the counts.

Of every source the documents at the beginning of up to four shards are read, evenly spread, as many bytes
as `sample_megabytes` allows. The files: token_counts.npy (uint64 [2 x vocab_size], of every second document,
then of the others; of counts [parts x vocab_size], and nothing else) and measures.json (`MeasuredFile`).
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from tokmill.tasks.core.stage import Outcome, Params, Stage
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import Counts
from tokmill.tasks.formats.files.arrays import NpyAppender, open_vector
from tokmill.tasks.formats.files.manifests import read_model, write_model
from tokmill.tasks.formats.text.shards import Shard, read_shard

if TYPE_CHECKING:
    from tokmill.tasks.audit.measurement import Measured

_MOST_SHARDS = 4
_BATCH_BYTES = 1 << 18  # little is read ahead that is not measured
_PRETOKENS = 1 << 17  # distinct ones: about 0.1 s; it divides a row group


class AuditShardParams(Params):
    """How much of a shard is read."""

    max_bytes: int = Field(ge=1, description="Documents are read until they have this many bytes of text.")


class Sampled(NamedTuple):
    """A shard of the sample, and how many bytes of it are read."""

    shard: Shard
    max_bytes: int


def sampled(corpus: Corpus, megabytes: float) -> list[Sampled]:
    """Return the shards that are sampled, by source, then index.

    Args:
        corpus: the text.
        megabytes: how much is read of each source, in 10^6 bytes.
    """
    return [one for source in corpus.sources for one in _of_source(corpus.shards(source), megabytes)]


def _of_source(shards: list[Shard], megabytes: float) -> list[Sampled]:
    filled = [shard for shard in shards if shard.num_documents]
    number = min(_MOST_SHARDS, len(filled))
    max_bytes = max(1, round(megabytes * 1e6 / max(1, number)))
    return [Sampled(filled[place * len(filled) // number], max_bytes) for place in range(number)]


def run(params: AuditShardParams, *, out: Path, tokenizer: Path, shard: Mapping[str, Any]) -> Outcome:
    """Write what is measured of one shard into `out`.

    Args:
        params: see `AuditShardParams`.
        out: the artifact's directory.
        tokenizer: the tokenizer artifact.
        shard: the shard, and the folders of its files.

    Raises:
        SourceError: a file is missing, or has changed since it was ingested.
        TokenizerError: the tokenizer is broken.
    """
    from tokmill.tasks.audit.entropy import fit_trigrams
    from tokmill.tasks.audit.measurement import measure
    from tokmill.tasks.formats.tokenizer import open_tokenizer

    batches = read_shard(Shard.model_validate(shard["shard"]), shard["roots"], batch_bytes=_BATCH_BYTES)
    found = fit_trigrams(measure(open_tokenizer(tokenizer), batches, params.max_bytes))
    write_measured(out, found)
    names = ("num_documents", "num_bytes", "num_tokens")
    return Outcome(metrics={name: getattr(found.amounts, name) for name in names})


AUDIT_SHARD = Stage(
    verb="audit_shard", task="audit", kind="audit_shard", version=4, params=AuditShardParams, run=run
)


MEASURES_FILE, COUNTS_FILE = "measures.json", "token_counts.npy"
_OF_MEASURED = ("example", "modelled_bytes", "modelled_bits")


class AuditCountsParams(Params):
    """Which counts are read."""

    parts: list[tuple[str, int]] = Field(min_length=1, description="Sources, and which part of each.")


def audited_together(counts: Counts) -> list[list[tuple[str, int]]]:
    """Return the parts of sources, of 2^17 pre-tokens or the rest, in groups that are worth a task each."""
    groups, total = dict[int, list[tuple[str, int]]](), 0
    for entry in counts.manifest.sources:
        for start in range(0, entry.statistics.num_distinct or 1, _PRETOKENS):
            total += min(_PRETOKENS, entry.statistics.num_distinct - start)
            groups.setdefault(total // _PRETOKENS, []).append((entry.source, start // _PRETOKENS))
    return list(groups.values())


def run_counts(params: AuditCountsParams, *, out: Path, tokenizer: Path, counts: Path) -> Outcome:
    """Write how often each token occurs in some parts of the counts into `out`."""
    from tokmill.tasks.audit.training_counts import occurrences
    from tokmill.tasks.formats.tokenizer import open_tokenizer

    tok, opened = open_tokenizer(tokenizer), Counts.open(counts)
    parts = (islice(opened.parts(source, _PRETOKENS, index), 1) for source, index in params.parts)
    found = [occurrences(tok, part) for part in parts]
    _write_counts(out, *found)
    return Outcome(metrics={"num_tokens": sum(int(one.sum()) for one in found)})


AUDIT_COUNTS = Stage(
    verb="audit_counts", task="audit", kind="audit_shard", version=1, params=AuditCountsParams, run=run_counts
)


def read_occurrences(counts: Counts, made: Sequence[Path], vocab_size: int) -> dict[str, NDArray[np.uint64]]:
    """Read what `run_counts` wrote for all groups of some counts; return it by source."""
    found = {source: np.zeros(vocab_size, np.uint64) for source in counts.sources}
    for parts, path in zip(audited_together(counts), made, strict=True):
        rows = open_vector(path / COUNTS_FILE, np.uint64, length=len(parts) * vocab_size)
        for (source, _), row in zip(parts, rows.reshape(-1, vocab_size), strict=True):
            found[source] += row
    return found


class MeasuredFile(BaseModel):
    """The content of `measures.json`: the sums of `Amounts`, and the rest of `Measured`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    amounts: dict[str, int]
    example: str
    modelled_bytes: int
    modelled_bits: float


def write_measured(out: Path, found: "Measured") -> None:
    """Write what was measured."""
    _write_counts(out, found.halves.ravel())
    rest = {name: getattr(found, name) for name in _OF_MEASURED}
    write_model(out / MEASURES_FILE, MeasuredFile(amounts=found.amounts._asdict(), **rest))


def _write_counts(out: Path, *several: NDArray[np.uint64]) -> None:
    with NpyAppender(out / COUNTS_FILE, np.uint64) as counts:  # says what is wrong if the disk is full
        for found in several:
            counts.append(found)


def read_measured(path: Path, vocab_size: int) -> "Measured":
    """Read what `write_measured` wrote."""
    from tokmill.tasks.audit.measurement import Amounts, Measured

    found = read_model(path / MEASURES_FILE, MeasuredFile, "measures of a text")
    counts = open_vector(path / COUNTS_FILE, np.uint64, length=2 * vocab_size)
    rest = {name: getattr(found, name) for name in _OF_MEASURED}
    return Measured(Amounts(**found.amounts), counts.reshape(2, vocab_size), **rest)
