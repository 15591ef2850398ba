"""encode: turn the documents of a corpus into token ids, one shard at a time.

The tokens of a kept document are those of `Tokenizer.encode` between the boundary tokens, unless it is
rearranged to fill in its middle. The tokenizer is first checked to encode as it did when it was published.
`encode` lists the shards of all sources in one manifest.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Params, Scalar, Stage, Unit
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import (
    EncodedManifest,
    EncodedShard,
    EncodedStatistics,
    ShardEntry,
    SourceEntry,
    token_dtype,
)
from tokmill.tasks.formats.text.quarantine import place_of
from tokmill.tasks.formats.text.shards import Shard, read_shard
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tokenizer.core.stopping import raise_if_stopped

Rate = Annotated[float, Field(ge=0, le=1)]


class EncodeParams(Params):
    """What encoding adds to documents, drops and rearranges."""

    end_of_document: str | None = Field(
        default="<|endoftext|>",
        description="Special token to add after each document; empty for none, as where "
        "train.special_tokens = [].",
    )
    begin_of_document: str | None = Field(
        default=None,
        description="Special token to add before each document; empty for none.",
    )
    min_tokens: int = Field(
        default=1,
        ge=1,
        lt=1 << 31,
        description="Documents with fewer tokens of text than this are dropped and counted.",
    )
    special_tokens_in_text: Literal["as_text", "raise", "allowed"] = Field(
        default="as_text",
        description="How the name of a special token in a text is treated: as ordinary text ('as_text'), "
        "as an error ('raise'), or as the special token ('allowed').",
    )
    fim_rate: Rate | Mapping[str, Rate] = Field(
        default=0.0,
        description="Fill in the middle, on characters: the fraction of the documents, from 0 to 1, whose "
        "text is cut in three and rearranged as prefix, suffix, middle; one number, or a table by source (0 "
        "for sources that it does not name). pack.fim_rate does the same on tokens; use only one of them.",
    )
    fim_spm_rate: Rate = Field(
        default=0.5,
        description="The fraction of the rearranged documents with the suffix first (SPM instead of PSM).",
    )
    fim_tokens: tuple[str, str, str] | None = Field(
        default=None,
        description="Special tokens before prefix, suffix and middle, in this order.",
        examples=[["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]],
    )
    fim_seed: int = Field(
        default=0,
        ge=0,
        lt=1 << 61,
        description="Seed that decides which documents are rearranged, and where they are cut.",
    )

    @property
    def rearranges(self) -> bool:
        """Whether any document may be rearranged."""
        rates = self.fim_rate.values() if isinstance(self.fim_rate, Mapping) else [self.fim_rate]
        return any(rate > 0 for rate in rates)

    @classmethod
    def without_effect(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of fill in the middle if no document is rearranged."""
        of_fim = ("fim_spm_rate", "fim_tokens", "fim_seed")
        return {} if given.get("fim_rate") else dict.fromkeys(of_fim, "fim_rate is 0")

    @model_validator(mode="after")
    def _check_fim(self) -> Self:
        if self.rearranges and (self.fim_tokens is None or len(set(self.fim_tokens)) < 3):
            raise ValueError(
                f"fim_tokens={self.fim_tokens} must be three different special tokens where fim_rate is not "
                "0; name those of your vocabulary for prefix, suffix and middle"
            )
        return self

    def for_source(self, source: str) -> "EncodeParams":
        """The parameters for one source: the same, with that source's `fim_rate`."""
        if not isinstance(self.fim_rate, Mapping):
            return self
        return self.model_copy(update={"fim_rate": self.fim_rate.get(source, 0.0)})

    def plain(self) -> "EncodeParams":
        """The same without rearranging any document, as text is encoded for validation."""
        unread = ("fim_rate", "fim_spm_rate", "fim_tokens", "fim_seed")
        return EncodeParams(**self.model_dump(exclude=set(unread)))


def run_shard(params: EncodeParams, *, out: Path, tokenizer: Path, shard: Mapping[str, Any]) -> Outcome:
    """Encode one corpus shard into `out`.

    Args:
        params: see `EncodeParams`; `fim_rate` is a number.
        out: the artifact's directory.
        tokenizer: the tokenizer artifact.
        shard: {"shard": a `Shard` as JSON, "roots": {source: absolute folder}}.
    """
    from tokmill.tasks.encode.encoding import Additions, encode_batches, end_token_id
    from tokmill.tasks.fim.rearrangement import TextFim

    encoder = open_tokenizer(tokenizer)
    plan = Shard.model_validate(shard["shard"])
    if isinstance(params.fim_rate, Mapping):
        raise StoreError(
            "encode: fim_rate is a table, but a shard needs its source's own rate; pass `for_source(source)`"
            " parameters"
        )
    fim = None
    if params.fim_rate:
        ids = [end_token_id(encoder, name, "fim_tokens") for name in params.fim_tokens or ()]
        prefix, suffix, middle = (token_id for token_id in ids if token_id is not None)
        seed = params.fim_seed ^ int(plan.digest[:15], 16)
        fim = TextFim(params.fim_rate, params.fim_spm_rate, (prefix, suffix, middle), seed)

    def place(ordinal: int) -> str:
        segment = next(part for part in reversed(plan.segments) if part.first_ordinal <= ordinal)
        row = segment.first_row + ordinal - segment.first_ordinal
        return f"source '{plan.source}': {place_of(segment.file, row, segment.format)}"

    statistics = encode_batches(
        encoder,
        read_shard(plan, shard["roots"]),
        out,
        end_id=end_token_id(encoder, params.end_of_document),
        min_tokens=params.min_tokens,
        additions=Additions(end_token_id(encoder, params.begin_of_document, "begin_of_document"), fim),
        special_tokens_in_text=params.special_tokens_in_text,
        where=place,
    )
    return Outcome(
        metrics=_metrics(statistics),
        accounts=_accounts(NO_SOURCE, plan.num_documents, plan.num_bytes, statistics),
    )


def run(params: EncodeParams, *, out: Path, corpus: Path, tokenizer: Path, shards: Sequence[Path]) -> Outcome:
    """List the encoded shards of all sources in `encoded.json`."""
    from tokmill.tasks.encode.encoding import end_token_id

    encoder, opened = open_tokenizer(tokenizer), Corpus.open(corpus)
    entries, accounts = [], []
    for source, parts in opened.pair(shards, "encode").items():
        entries.append(_entry(source, parts, encoder.vocab_size))
        stats = opened.source_stats(source)
        accounts += _accounts(source, stats.num_documents, stats.num_bytes, entries[-1].statistics)
    EncodedManifest(
        tokenizer=artifact_digest(tokenizer),
        dtype=token_dtype(encoder.vocab_size),
        vocab_size=encoder.vocab_size,
        begin_of_document_id=end_token_id(encoder, params.begin_of_document, "begin_of_document"),
        end_of_document_id=end_token_id(encoder, params.end_of_document),
        sources=entries,
    ).save(out)
    total = sum((entry.statistics for entry in entries), EncodedStatistics())
    return Outcome(metrics={**_metrics(total), "num_shards": len(shards)}, accounts=accounts)


def _entry(source: str, parts: Sequence[tuple[Shard, Path]], vocab_size: int) -> SourceEntry:
    """The manifest's entry of a source: its shards, with the statistics of their encodings."""
    total, entries = EncodedStatistics(), []
    for plan, path in parts:
        raise_if_stopped()
        shard = EncodedShard.open(path)
        if len(shard.token_counts) != vocab_size:
            raise StoreError(
                f"encode: shard {path} was encoded with {len(shard.token_counts)} ids, but the tokenizer has "
                f"{vocab_size}; encode the shard with this tokenizer"
            )
        total += shard.statistics
        entries.append(
            ShardEntry(
                index=plan.index,
                digest=artifact_digest(path),
                num_documents=shard.num_documents,
                num_tokens=shard.num_tokens,
            )
        )
    return SourceEntry(source=source, statistics=total, shards=entries)


def artifact_digest(directory: Path) -> str:
    """The content digest of the artifact in `directory`: from its record if it has one, else its files."""
    from tokmill.tasks.store.digest import digest_folder
    from tokmill.tasks.store.layout import RECORD_FILE
    from tokmill.tasks.store.record import read_record

    published = (directory / RECORD_FILE).exists()
    return read_record(directory).content_digest if published else digest_folder(directory)


def _metrics(statistics: EncodedStatistics) -> dict[str, Scalar]:
    """The statistics, but not their words between white space: in figures, words are the audit's."""
    return {name: int(value) for name, value in statistics.model_dump(exclude={"num_words"}).items()}


def _accounts(source: str, num_documents: int, num_bytes: int, found: EncodedStatistics) -> list[Account]:
    """Accounts of a source's documents, bytes and tokens."""
    num_text_tokens = found.num_text_tokens + found.num_dropped_tokens
    ends = {"end_of_document": found.num_end_tokens}
    ends |= {"begin_of_document": found.num_begin_tokens} if found.num_begin_tokens else {}
    ends |= {"fill_in_the_middle": found.num_fim_tokens} if found.num_fim_tokens else {}
    flows: list[tuple[Unit, int, dict[str, int], int, int]] = [
        ("documents", num_documents, {}, found.num_documents, found.num_dropped_documents),
        ("bytes", num_bytes, {}, found.num_bytes, found.num_dropped_bytes),
        ("tokens", num_text_tokens, ends, found.num_tokens, found.num_dropped_tokens),
    ]
    accounts = []
    for unit, num_in, added, kept, dropped in flows:
        became = {"kept": kept, "dropped:min_tokens": dropped}
        accounts.append(Account(source=source, unit=unit, num_in=num_in, added=added, became=became))
    return accounts


ENCODE_SHARD = Stage(
    verb="encode_shard", task="encode", kind="encoded_shard", version=5, params=EncodeParams, run=run_shard
)
ENCODE = Stage(verb="encode", task="encode", kind="encoded", version=4, params=EncodeParams, run=run)
