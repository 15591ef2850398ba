"""Takes the facts of a data card from the records and tables of the artifacts that it is about."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from tokmill.tasks.audit.summary import AuditSummary, read_summary
from tokmill.tasks.card.conservation import AccountTable, StageAccounts, account_table, padding
from tokmill.tasks.card.facts import (
    ArtifactFacts,
    BalanceFacts,
    CardFacts,
    MixtureFacts,
    PackedFacts,
    SourceFacts,
    SourceFile,
    TokenizerFacts,
)
from tokmill.tasks.card.validation import of_validation, validation_facts
from tokmill.tasks.core.errors import AccountError
from tokmill.tasks.core.stage import Account
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import Balance, BalancedSource
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.mixture import MixedSource, Mixture
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.sampling import proportions
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.usage.summary import Summary, Yield
from tokmill.tasks.usage.summary import read_summary as read_usage

SHOWN_FILES = 20
"""Files of each source that a card names."""


@dataclass(frozen=True)
class Upstream:
    """The directories of the artifacts that a card describes; each is read on first use."""

    paths: Mapping[str, Path]
    earlier: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """By kind, the versions that documents were taken down from to make it, the oldest first."""

    @cached_property
    def records(self) -> dict[str, Record]:
        """The artifacts' records by kind, in the order of the DAG."""
        return {kind: read_record(path) for kind, path in self.paths.items() if not of_validation(kind)}

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus."""
        return Corpus.open(self.paths["corpus"])

    @cached_property
    def balance(self) -> Balance | None:
        """The balance; None where an existing tokenizer was taken."""
        return Balance.open(self.paths["balance"]) if "balance" in self.paths else None

    @cached_property
    def audit(self) -> AuditSummary:
        """The audit's summary."""
        return read_summary(self.paths["audit"])

    @cached_property
    def usage(self) -> Summary:
        """How the vocabulary is used in what was encoded."""
        return read_usage(self.paths["usage"])

    @cached_property
    def encoded(self) -> Encoded:
        """The encoded corpus."""
        return Encoded.open(self.paths["encoded"])

    @cached_property
    def mixture(self) -> Mixture:
        """The mixture."""
        return Mixture.open(self.paths["mixture"])

    @cached_property
    def packed(self) -> PackedManifest:
        """The packed sequences."""
        return PackedManifest.open(self.paths["packed"])


def gather_facts(upstream: Upstream, given: Mapping[str, Any], notes: Mapping[str, str]) -> CardFacts:
    """Read all facts of the card."""
    return CardFacts(
        **given,
        files=_files(upstream.corpus),
        sources=source_facts(upstream, notes),
        tokenizer=tokenizer_facts(upstream),
        balance=BalanceFacts(**upstream.balance.model_dump(include=set(BalanceFacts.model_fields)))
        if upstream.balance
        else None,
        mixture=MixtureFacts(
            **upstream.mixture.manifest.model_dump(include=set(MixtureFacts.model_fields)),
            bytes_per_token=_mixed_bytes_per_token(upstream),
        ),
        packed=_packed_facts(upstream.packed, upstream.records["packed"].accounts),
        ledgers=ledgers(upstream),
        artifacts=[ArtifactFacts.of(record) for record in upstream.records.values()],
        validation=validation_facts(upstream.paths) if "validation" in upstream.paths else None,
    )


def _files(corpus: Corpus) -> list[SourceFile]:
    """The first files of each source."""
    rows = corpus.table("files").select(list(SourceFile.model_fields)).to_pylist()
    return [
        SourceFile(**row)
        for source in corpus.sources
        for row in [row for row in rows if row["source"] == source][:SHOWN_FILES]
    ]


def _mixed_bytes_per_token(upstream: Upstream) -> float | None:
    """Bytes per token of all sources, each read as often as the mixture reads it."""
    num_bytes = num_tokens = 0.0
    for entry in upstream.mixture.manifest.sources:
        found = upstream.encoded.source(entry.source).statistics
        read = entry.drawn_tokens / max(1, entry.num_tokens)
        added = found.num_begin_tokens + found.num_end_tokens + found.num_fim_tokens
        num_bytes += read * found.num_bytes
        num_tokens += read * (found.num_tokens - added)
    return round(num_bytes / num_tokens, 6) if num_tokens else None


def source_facts(upstream: Upstream, notes: Mapping[str, str]) -> list[SourceFacts]:
    """One entry per source, in the corpus' order."""
    corpus, encoded = upstream.corpus, upstream.encoded
    stats = {source: corpus.source_stats(source) for source in corpus.sources}
    tokens = {source: encoded.source(source).statistics.num_tokens for source in corpus.sources}
    text_shares, token_shares = (
        proportions({source: Decimal(amount) for source, amount in amounts.items()})
        for amounts in ({source: found.num_bytes for source, found in stats.items()}, tokens)
    )
    balanced = {entry.source: entry for entry in upstream.balance.sources} if upstream.balance else {}
    mixed = {entry.source: entry for entry in upstream.mixture.manifest.sources}
    audited = {entry.source: entry for entry in upstream.usage.sources}
    return [
        SourceFacts(
            source=source,
            note=notes.get(source, ""),
            num_files=found.num_files,
            num_documents=found.num_documents,
            num_bytes=found.num_bytes,
            text_share=float(text_shares[source]),
            num_tokens=tokens[source],
            token_share=float(token_shares[source]),
            training_share=float(upstream.records["tokenizer"].metrics.get(f"share.{source}", 0.0))
            if upstream.balance
            else None,
            **_training(balanced.get(source)),
            **_mixing(mixed[source]),
            **_yield(audited[source]),
        )
        for source, found in stats.items()
    ]


def _training(balanced: BalancedSource | None) -> dict[str, Any]:
    names = {"balanced_share": "share", "training_factor": "factor", "training_capped": "capped"}
    return {ours: getattr(balanced, its) if balanced else None for ours, its in names.items()}


def _mixing(mixed: MixedSource) -> dict[str, Any]:
    own = mixed.model_dump(include={"requested_share", "epochs", "max_repetition", "limits"})
    tokens = {"mixed_tokens": mixed.drawn_tokens, "read_before_tokens": mixed.given_before_tokens}
    return {**own, **tokens, "mixed_share": mixed.share}


def _yield(audited: Yield) -> dict[str, Any]:
    ratios = audited.model_dump(include={"bytes_per_token", "chars_per_token", "renyi_efficiency"})
    return {**ratios, "vocabulary_used": audited.used_share}


def tokenizer_facts(upstream: Upstream) -> TokenizerFacts:
    """The facts about the tokenizer, and the findings of the audit."""
    from tokmill.tokenizer import load

    definition = load(upstream.paths["tokenizer"] / "tokmill.json").definition
    usage, end_id = upstream.usage, upstream.packed.end_of_document_id
    specials, figures = dict(definition.special_tokens), definition.model.figures()
    named = [name for name in specials if name not in definition.vocabulary.reserved]
    return TokenizerFacts(
        origin="trained" if upstream.balance else "existing",
        vocab_size=definition.vocab_size,
        num_merges=figures.pop("num_merges", None),
        family=definition.family,
        figures=figures,
        unknown_token=definition.model.unknown_token,
        num_unknown_tokens=usage.num_unknown_tokens,
        unknown_share=usage.unknown_share,
        roles=definition.all_roles,
        chat_templates=dict(definition.chat_templates),
        special_tokens=named,
        num_reserved=definition.num_reserved,
        split_pattern=str(definition.pre_tokenizer.split_pattern),
        digits=definition.pre_tokenizer.digits,
        normalizer=definition.normalizer.name,
        end_of_document=next((name for name, token in specials.items() if token == end_id), None),
        bytes_per_token=usage.overall.bytes_per_token,
        chars_per_token=usage.overall.chars_per_token,
        audited_bytes_per_token=upstream.audit.overall.get("bytes_per_token"),
        audited_text=upstream.audit.text,
        vocabulary_used=usage.overall.used_share,
        num_never_encoded_tokens=usage.num_never_encoded_tokens,
        renyi_efficiency=usage.renyi_efficiency,
        gate=upstream.audit.gate,
    )


def _packed_facts(packed: PackedManifest, accounts: Sequence[Account]) -> PackedFacts:
    known = packed.model_dump(include=set(PackedFacts.model_fields))
    documents: Counter[str] = Counter()
    for account in accounts:
        documents.update(account.became if account.unit == "documents" else {})
    fill = round(packed.num_tokens / (packed.num_sequences * packed.sequence_length), 12)
    return PackedFacts(
        **known, fill=fill, num_shards=len(packed.shards), documents=dict(sorted(documents.items()))
    )


def ledgers(upstream: Upstream) -> list[AccountTable]:
    """The accounts of documents from the files to the sequences, and of tokens from the encoder on."""
    sources = upstream.corpus.sources
    divided = "ingested" in upstream.paths
    read = _stage(upstream, "ingested" if divided else "corpus", "ingest")
    kept = [_stage(upstream, "corpus", "holdout")] if divided else []
    encoded = _stage(upstream, "encoded", "encode")
    excluded, taken = _taken_down(upstream, "mixture", "kept"), _taken_down(upstream, "packed", "packed")
    mixed = [_stage(upstream, "mixture", "mix", "kept", "repeated"), *excluded]
    packed = [_stage(upstream, "packed", "pack", "packed", "split", "truncated"), *taken]
    packed_tokens = [_stage(upstream, "packed", "pack", "packed"), *taken]
    documents = account_table("documents", sources, [read, *kept, encoded, *mixed, *packed])
    tokens = account_table("tokens", sources, [encoded, *mixed, *packed_tokens])
    _check_end(tokens.total[-1], packed[-1].accounts, upstream.packed)
    return [documents, tokens]


def _stage(upstream: Upstream, kind: str, stage: str, *passes: str) -> StageAccounts:
    hands_on = {
        "ingest": "read",
        "holdout": "for training",
        "encode": "encoded",
        "mix": "mixed",
        "pack": "packed",
    }[stage]
    earlier = upstream.earlier.get(kind)
    record = read_record(earlier[0]) if earlier else upstream.records[kind]
    return StageAccounts(stage, hands_on, frozenset(passes or ("kept",)), record.accounts)


def _taken_down(upstream: Upstream, kind: str, passes: str) -> list[StageAccounts]:
    """The takedowns that led to the artifact of a kind, one after the other."""
    paths = [*upstream.earlier.get(kind, ()), upstream.paths[kind]]
    return [
        StageAccounts(f"takedown {number}", "left", frozenset({passes}), read_record(path).accounts)
        for number, path in enumerate(paths[1:], start=1)
    ]


def _check_end(num_tokens: int, accounts: Sequence[Account], packed: PackedManifest) -> None:
    """Tokens and padding of the accounts must be those of the sequences."""
    found = num_tokens + padding(accounts)
    expected = packed.num_sequences * packed.sequence_length
    if (num_tokens, found) != (packed.num_tokens, expected):
        raise AccountError(
            f"card: the accounts lead to {num_tokens} tokens and {found} with padding, but the packed "
            f"sequences hold {packed.num_tokens} and {expected}; pack again"
        )
