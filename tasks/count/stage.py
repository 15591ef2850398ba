"""count: how often each pre-token occurs in each source.

`count_shard` normalizes the documents of one corpus shard, cuts them into pre-tokens and counts these;
`count` adds up the shards of each source, if they are many after `merge_counts` did so in a tree. Training
needs nothing else of the text. Special tokens are cut out first and not counted. Memory is bounded by the
budget.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tokmill.tasks.core.context import memory_budget
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Params, Scalar, Stage, Unit
from tokmill.tasks.count.merging import parts_of
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import (
    COUNTS_FILE,
    CountedSource,
    CountsManifest,
    CountsStatistics,
    PreTokenization,
    See,
)
from tokmill.tasks.formats.text.shards import Shard, read_shard
from tokmill.tasks.store.fingerprint import only_with
from tokmill.tokenizer.sentences.options import SentenceText

if TYPE_CHECKING:
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

_ON_SENTENCES, _ON_PRETOKENS = only_with("mode", "sentencepiece"), only_with("mode", "pretokens")
_LOG = logging.getLogger(__name__)


class CountParams(Params):
    """How text is cut into pre-tokens."""

    split_pattern: str = Field(
        default="o200k",
        min_length=1,
        description="How text is cut before merges are learned: gpt2, cl100k, o200k, llama3, qwen2, cs336, "
        "or any regular expression. o200k keeps vowel signs with their letters.",
        json_schema_extra=_ON_PRETOKENS,
    )
    digits: Literal["pattern", "single", "groups_of_three", "groups_of_three_from_right"] = Field(
        default="pattern",
        description="Numbers are cut as the split pattern says, into single digits, or into groups of three, "
        "from the left (123 456 7) or, as arithmetic lines them up, from the right (1 234 567).",
        json_schema_extra=_ON_PRETOKENS,
    )
    normalizer: str | None = Field(
        default=None,
        description="Steps joined with +, e.g. nfc or nfkc+lowercase; some have arguments, e.g. "
        'strip+replace("``","\\""); empty leaves text unchanged. With mode sentencepiece one of its rules: '
        "identity, nfkc, nmt_nfkc, nfkc_cf, nmt_nfkc_cf.",
    )
    special_tokens: tuple[str, ...] = Field(
        default=("<|endoftext|>",),
        description="Tokens that are never split nor merged; their names in a text are not counted.",
    )

    mode: Literal["pretokens", "sentencepiece"] = Field(
        default="pretokens",
        description="char_bpe and unigram: train on the pre-tokens of the split pattern, or on whole "
        "sentences, as SentencePiece does: spaces become ▁, and the settings below are those of its trainer.",
        json_schema_extra=_ON_SENTENCES,
    )
    add_dummy_prefix: bool = Field(
        default=True,
        description="Put a space before each document, so that its first word is like others.",
        json_schema_extra=_ON_SENTENCES,
    )
    remove_extra_whitespaces: bool = Field(
        default=True,
        description="Remove spaces at both ends of a document, and all but one of several.",
        json_schema_extra=_ON_SENTENCES,
    )
    normalization_rules: dict[str, str] = Field(
        default={},
        description='Rules instead of a normalizer: what becomes of a string, e.g. {"½" = "1/2"}; the '
        "longest one applies.",
        json_schema_extra=_ON_SENTENCES,
    )
    split_by_whitespace: bool = Field(
        default=True,
        description="No piece has a ▁ behind another character; without, pieces may hold several words.",
        json_schema_extra=_ON_SENTENCES,
    )
    allow_whitespace_only_pieces: bool = Field(
        default=False,
        description="Several ▁ may be a piece.",
        json_schema_extra=_ON_SENTENCES,
    )
    treat_whitespace_as_suffix: bool = Field(
        default=False,
        description="▁ ends words instead of beginning them, and the space is put after each document.",
        json_schema_extra=_ON_SENTENCES,
    )
    user_defined_symbols: tuple[str, ...] = Field(
        default=(),
        description="Strings that are one piece each, wherever they stand.",
        json_schema_extra=_ON_SENTENCES,
    )

    @property
    def sentences(self) -> SentenceText | None:
        """How text is read as sentences; None if it is cut by the split pattern."""
        if self.mode != "sentencepiece":
            return None
        given = {field.name: getattr(self, field.name) for field in fields(SentenceText)}
        rules = tuple(sorted(self.normalization_rules.items()))
        return SentenceText(**given | {"normalization_rules": rules})

    @property
    def cut(self) -> PreTokenization:
        """How text is cut into pre-tokens; special tokens are sorted, as their order does not matter."""
        specials = tuple(sorted(set(self.special_tokens)))
        if (sentences := self.sentences) is not None:
            return PreTokenization(
                split_pattern=sentences.pattern,
                digits="pattern",
                normalizer=sentences.normalizer,
                special_tokens=specials,
                sentences=sentences,
            )
        return PreTokenization(
            split_pattern=self.split_pattern,
            digits=self.digits,
            normalizer=self.normalizer,
            special_tokens=specials,
        )


def run_shard(params: CountParams, *, out: Path, shard: Mapping[str, Any]) -> Outcome:
    """Count the pre-tokens of one corpus shard into `out`: `counts.parquet` and `statistics.json`.

    Args:
        params: how text is cut into pre-tokens.
        out: the artifact's directory.
        shard: {"shard": a `Shard` as JSON, "roots": {source: absolute folder}}.
    """
    from tokmill.tasks.count.counter import DocumentCounter

    plan = Shard.model_validate(shard["shard"])
    counter = DocumentCounter(params.cut, memory_budget())
    statistics = counter.count(read_shard(plan, shard["roots"]), out / COUNTS_FILE)
    statistics.save(out)
    accounts = _accounts(NO_SOURCE, (plan.num_documents, plan.num_bytes), statistics)
    return Outcome(metrics=statistics.model_dump(), accounts=accounts)


class MergeParams(Params):
    """Merging has no parameters."""


def run_merge(params: MergeParams, *, out: Path, shards: Sequence[Path]) -> Outcome:
    """Add up the counts of some shards into `out`: `counts.parquet` and `statistics.json`."""
    statistics = _add_up_shards(shards, out / COUNTS_FILE)
    statistics.save(out)
    accounts = _accounts(NO_SOURCE, (statistics.num_documents, statistics.num_bytes), statistics)
    return Outcome(metrics=statistics.model_dump(), accounts=accounts)


def _add_up_shards(shards: Sequence[Path], path: Path, see: See | None = None) -> CountsStatistics:
    """Write the sum of some shards' counts into the file `path`, and return its statistics."""
    from tokmill.tasks.count.counter import add_up

    parts = [CountsStatistics.open(shard) for shard in shards]
    num_pretokens = sum(part.num_pretokens for part in parts)
    totals = add_up([shard / COUNTS_FILE for shard in shards], path, num_pretokens, memory_budget(), see)
    return CountsStatistics(
        num_documents=sum(part.num_documents for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        **totals._asdict(),
    )


def run(params: CountParams, *, out: Path, corpus: Path, shards: Sequence[Path]) -> Outcome:
    """Add up the counts of each source's shards: one `<source>.parquet` per source, and `sources.json`."""
    opened = Corpus.open(corpus)
    entries, accounts = [], []
    for source, parts in _by_source(opened, shards).items():
        statistics = _add_up_source(source, parts, out, params.cut.split_pattern)
        entries.append(CountedSource(source=source, statistics=statistics))
        stats = opened.source_stats(source)
        accounts += _accounts(source, (stats.num_documents, stats.num_bytes), entries[-1].statistics)
    CountsManifest(cut=params.cut, sources=entries).save(out)
    return Outcome(metrics=_metrics(entries), accounts=accounts)


def _by_source(corpus: Corpus, shards: Sequence[Path]) -> dict[str, list[Path]]:
    """Return each source's counted or merged shards."""
    counted = {source: len(corpus.shards(source)) for source in corpus.sources}
    merged = {source: len(parts_of(number)) for source, number in counted.items()}
    for numbers in (counted, merged):
        if sum(numbers.values()) == len(shards):
            remaining = iter(shards)
            return {source: list(islice(remaining, number)) for source, number in numbers.items()}
    raise StoreError(
        f"count: the corpus has {sum(counted.values())} shards, or {sum(merged.values())} once they are "
        f"merged, and artifacts of {len(shards)} were given; pass one for each, by source, then index"
    )


def _add_up_source(source: str, shards: Sequence[Path], out: Path, split_pattern: str) -> CountsStatistics:
    """Add a source up, and warn if its pre-tokens begin with marks that belong to the letter before."""
    from tokmill.tokenizer.splitting.marks import describe, firsts_of_counts

    firsts = Counter[str]()

    def see(part: "PretokenCounts") -> None:
        firsts.update(firsts_of_counts(part.data, part.offsets, part.counts))

    statistics = _add_up_shards(shards, out / f"{source}.parquet", see)
    if remark := describe(split_pattern, firsts):
        _LOG.warning("count: source %s: %s", source, remark)
    return statistics


def _metrics(entries: Sequence[CountedSource]) -> dict[str, Scalar]:
    """Sums over sources; a pre-token of two sources is distinct in each of them."""
    names = ("num_documents", "num_bytes", "num_pretokens", "num_distinct")
    totals: dict[str, Scalar] = {
        name: sum(getattr(entry.statistics, name) for entry in entries) for name in names
    }
    totals["num_distinct_by_source"] = totals.pop("num_distinct")
    return totals | {"num_sources": len(entries)}


def _accounts(source: str, num_in: tuple[int, int], statistics: CountsStatistics) -> list[Account]:
    """Accounts of documents and bytes: in as recorded in the corpus, out as counted."""
    counted = (statistics.num_documents, statistics.num_bytes)
    units: tuple[Unit, Unit] = ("documents", "bytes")
    return [
        Account(source=source, unit=unit, num_in=came, became={"counted": went})
        for unit, came, went in zip(units, num_in, counted, strict=True)
    ]


COUNT_SHARD = Stage(
    verb="count_shard", task="count", kind="counts_shard", version=1, params=CountParams, run=run_shard
)
COUNT = Stage(verb="count", task="count", kind="counts", version=2, params=CountParams, run=run)
MERGE_COUNTS = Stage(
    verb="merge_counts",
    task="merge_counts",
    kind="counts_shard",
    version=1,
    params=MergeParams,
    run=run_merge,
)
