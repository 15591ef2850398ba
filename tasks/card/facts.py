"""What a data card says: facts taken from the records and tables of the artifacts that it is about.

`card.json` is `CardFacts`. Nothing in it depends on when, where or by whom the data was made, or on what was
taken from the cache: the same data gives the same card.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tokmill.tasks.audit.summary import Summary, Yield, read_summary
from tokmill.tasks.card.conservation import Ledger, StageAccounts, ledger, padding
from tokmill.tasks.core.errors import AccountError
from tokmill.tasks.core.optional import WithOptional
from tokmill.tasks.core.stage import Account
from tokmill.tasks.formats.balance import Balance, BalancedSource
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.mixture import MixedSource, Mixture
from tokmill.tasks.formats.packed.figures import PackedShare
from tokmill.tasks.formats.packed.layout import PackedManifest
from tokmill.tasks.sampling import proportions
from tokmill.tasks.store.record import Record, read_record


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceFacts(_Facts):
    """One source, from its text to its tokens in the sequences.

    Attributes:
        note: what the user says of it.
        text_share: its part of the corpus' bytes of text.
        balanced_share: the part that the balance gives it in the tokenizer's training, in the balance's unit;
            None if an existing tokenizer was taken.
        training_share: its part of the weighted bytes that the tokenizer was trained on; likewise.
        training_factor: how often its text counted there.
        training_capped: whether the balance's limit bound.
        num_tokens: tokens of its documents, end tokens included.
        token_share: its part of all such tokens.
        requested_share: its part of the mixture's tokens, as asked for.
        mixed_share: its part of the mixture's tokens.
        mixed_tokens: its tokens in the mixture, repetitions included.
        read_before_tokens: its tokens that were read in the run before this mixture.
        epochs: `mixed_tokens` / `num_tokens`.
        limits: whether its repetition limit bound the mixture.
        fertility: tokens per word.
        renyi_efficiency: of its ordinary tokens; see `tasks.audit.summary.renyi_efficiency`.
        vocabulary_used: part of the ordinary vocabulary that occurs in it.
    """

    source: str
    note: str
    num_files: int
    num_documents: int
    num_bytes: int
    text_share: float
    balanced_share: float | None
    training_share: float | None
    training_factor: float | None
    training_capped: bool | None
    num_tokens: int
    token_share: float
    requested_share: float
    mixed_share: float
    mixed_tokens: int
    read_before_tokens: int
    epochs: float
    max_repetition: float
    limits: bool
    bytes_per_token: float | None
    chars_per_token: float | None
    fertility: float | None
    vocabulary_used: float | None
    renyi_efficiency: float | None


class TokenizerFacts(_Facts, WithOptional):
    """The tokenizer.

    Attributes:
        origin: whether it was trained on this corpus.
        num_merges: merges of a byte-level BPE tokenizer.
        family: the family of its model.
        figures: counts that describe a model of another family.
        unknown_token: what text becomes that the vocabulary does not have; None if it has any text.
        num_unknown_tokens: how often that is in the encoded text.
    """

    optional = frozenset({"num_merges", "family", "figures", "unknown_token", "num_unknown_tokens"})

    origin: Literal["trained", "existing"]
    vocab_size: int
    num_merges: int | None = None
    special_tokens: list[str]
    num_reserved: int
    split_pattern: str
    digits: str
    normalizer: str | None
    end_of_document: str | None
    bytes_per_token: float | None
    chars_per_token: float | None
    fertility: float | None
    vocabulary_used: float | None
    num_unused_tokens: int
    renyi_efficiency: float | None
    gate: str
    family: str = "byte_bpe"
    figures: dict[str, int] = {}
    unknown_token: str | None = None
    num_unknown_tokens: int | None = None


class BalanceFacts(_Facts):
    """How sources were weighted in the tokenizer's training."""

    method: str
    temperature: float | None
    unit: str
    max_repetition: float | None
    total: int
    warnings: list[str]


class MixtureFacts(_Facts):
    """How sources were weighted in the training data.

    Attributes:
        first_position: tokens of the run that were read before, from another mixture; else 0.
        warnings: where it misses what was asked for by more than the tolerance.
    """

    method: str
    temperature: float | None
    seed: int
    num_documents: int
    num_tokens: int
    first_position: int
    warnings: list[str]


class PackedFacts(_Facts):
    """The sequences.

    Attributes:
        fill: part of the sequences that is not padding.
        documents: how many of the mixture's documents came to which end; see `tasks.packing.accounts`.
        shares: how the sources' shares came through packing; see `tasks.packing.shares`.
        share_block_sequences: sequences in each of the blocks whose shares were measured.
    """

    sequence_length: int
    num_sequences: int
    num_tokens: int
    num_padding_tokens: int
    fill: float
    strategy: str
    long_documents: str | None
    last_sequence: str | None
    formats: list[str]
    dtype: str
    pad_id: int
    end_of_document_id: int | None
    num_shards: int
    documents: dict[str, int]
    shares: list[PackedShare]
    share_block_sequences: int | None


class ArtifactFacts(_Facts):
    """One artifact that the card is about, by its content."""

    kind: str
    content_digest: str
    num_files: int
    num_bytes: int


class CardFacts(_Facts):
    """The content of `card.json`."""

    title: str
    description: str
    license: str
    sources: list[SourceFacts]
    tokenizer: TokenizerFacts
    balance: BalanceFacts | None
    mixture: MixtureFacts
    packed: PackedFacts
    ledgers: list[Ledger]
    artifacts: list[ArtifactFacts]


@dataclass(frozen=True)
class Upstream:
    """The directories of the artifacts that a card is about; each is read when it is first asked for."""

    paths: Mapping[str, Path]
    earlier: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """By kind, the versions that documents were taken down from to make it, the oldest first."""

    @cached_property
    def records(self) -> dict[str, Record]:
        """The artifacts' records by kind, in the order of the DAG."""
        return {kind: read_record(path) for kind, path in self.paths.items()}

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus."""
        return Corpus.open(self.paths["corpus"])

    @cached_property
    def balance(self) -> Balance | None:
        """The balance; None where an existing tokenizer was taken."""
        return Balance.open(self.paths["balance"]) if "balance" in self.paths else None

    @cached_property
    def audit(self) -> Summary:
        """The audit's summary."""
        return read_summary(self.paths["audit"])

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


def gather_facts(
    upstream: Upstream, *, title: str, description: str, license_text: str, notes: Mapping[str, str]
) -> CardFacts:
    """Read everything that the card says.

    Raises:
        StoreError: an artifact has no record or is broken.
        AccountError: the stages' accounts do not lead from one to the next.
    """
    return CardFacts(
        title=title,
        description=description,
        license=license_text,
        sources=source_facts(upstream, notes),
        tokenizer=tokenizer_facts(upstream),
        balance=_balance_facts(upstream.balance),
        mixture=MixtureFacts(**upstream.mixture.manifest.model_dump(include=set(MixtureFacts.model_fields))),
        packed=_packed_facts(upstream.packed, upstream.records["packed"].accounts),
        ledgers=ledgers(upstream),
        artifacts=[_artifact_facts(record) for record in upstream.records.values()],
    )


def source_facts(upstream: Upstream, notes: Mapping[str, str]) -> list[SourceFacts]:
    """One entry a source, in the corpus' order."""
    corpus, encoded = upstream.corpus, upstream.encoded
    stats = {source: corpus.source_stats(source) for source in corpus.sources}
    tokens = {source: encoded.source(source).statistics.num_tokens for source in corpus.sources}
    text_shares, token_shares = (
        proportions({source: Decimal(amount) for source, amount in amounts.items()})
        for amounts in ({source: found.num_bytes for source, found in stats.items()}, tokens)
    )
    balanced = {entry.source: entry for entry in upstream.balance.sources} if upstream.balance else {}
    mixed = {entry.source: entry for entry in upstream.mixture.manifest.sources}
    audited = {entry.source: entry for entry in upstream.audit.sources}
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
            training_share=_measured(upstream.records["tokenizer"], source) if upstream.balance else None,
            **_training(balanced.get(source)),
            **_mixing(mixed[source]),
            **_yield(audited[source]),
        )
        for source, found in stats.items()
    ]


def _measured(tokenizer: Record, source: str) -> float:
    """What a source counted for in training; 0 where it was left out."""
    return float(tokenizer.metrics.get(f"share.{source}", 0.0))


def _training(balanced: BalancedSource | None) -> dict[str, Any]:
    names = {"balanced_share": "share", "training_factor": "factor", "training_capped": "capped"}
    return {ours: getattr(balanced, its) if balanced else None for ours, its in names.items()}


def _mixing(mixed: MixedSource) -> dict[str, Any]:
    own = mixed.model_dump(include={"requested_share", "epochs", "max_repetition", "limits"})
    tokens = {"mixed_tokens": mixed.drawn_tokens, "read_before_tokens": mixed.given_before_tokens}
    return {**own, **tokens, "mixed_share": mixed.share}


def _yield(audited: Yield) -> dict[str, Any]:
    ratios = audited.model_dump(
        include={"bytes_per_token", "chars_per_token", "fertility", "renyi_efficiency"}
    )
    return {**ratios, "vocabulary_used": audited.used_share}


def tokenizer_facts(upstream: Upstream) -> TokenizerFacts:
    """What the tokenizer is, and what the audit found."""
    from tokmill.tokenizer import load

    definition = load(upstream.paths["tokenizer"] / "tokmill.json").definition
    audit, end_id = upstream.audit, upstream.packed.end_of_document_id
    specials, figures = dict(definition.special_tokens), definition.model.figures()
    named = list(specials)[: len(specials) - definition.num_reserved]
    return TokenizerFacts(
        origin="trained" if upstream.balance else "existing",
        vocab_size=definition.vocab_size,
        num_merges=figures.pop("num_merges", None),
        family=definition.family,
        figures=figures,
        unknown_token=definition.model.unknown_token,
        num_unknown_tokens=audit.num_unknown_tokens,
        special_tokens=named,
        num_reserved=definition.num_reserved,
        split_pattern=str(definition.pre_tokenizer.split_pattern),
        digits=definition.pre_tokenizer.digits,
        normalizer=definition.normalizer.name,
        end_of_document=next((name for name, token in specials.items() if token == end_id), None),
        bytes_per_token=audit.overall.bytes_per_token,
        chars_per_token=audit.overall.chars_per_token,
        fertility=audit.overall.fertility,
        vocabulary_used=audit.overall.used_share,
        num_unused_tokens=audit.num_unused_tokens,
        renyi_efficiency=audit.renyi_efficiency,
        gate=audit.gate,
    )


def _balance_facts(balance: Balance | None) -> BalanceFacts | None:
    return BalanceFacts(**balance.model_dump(include=set(BalanceFacts.model_fields))) if balance else None


def _packed_facts(packed: PackedManifest, accounts: Sequence[Account]) -> PackedFacts:
    known = packed.model_dump(include=set(PackedFacts.model_fields))
    documents: Counter[str] = Counter()
    for account in accounts:
        documents.update(account.became if account.unit == "documents" else {})
    fill = round(packed.num_tokens / (packed.num_sequences * packed.sequence_length), 12)
    return PackedFacts(
        **known, fill=fill, num_shards=len(packed.shards), documents=dict(sorted(documents.items()))
    )


def _artifact_facts(record: Record) -> ArtifactFacts:
    return ArtifactFacts(
        kind=record.kind,
        content_digest=record.content_digest,
        num_files=len(record.files),
        num_bytes=record.num_bytes,
    )


def ledgers(upstream: Upstream) -> list[Ledger]:
    """The way of documents from the files, and of tokens from the encoder, to the sequences.

    Raises:
        AccountError: the accounts do not lead from one stage to the next, or not to what was packed.
    """
    sources = upstream.corpus.sources
    read, encoded = _stage(upstream, "corpus", "ingest"), _stage(upstream, "encoded", "encode")
    excluded, taken = _taken_down(upstream, "mixture", "kept"), _taken_down(upstream, "packed", "packed")
    mixed = [_stage(upstream, "mixture", "mix", "kept", "repeated"), *excluded]
    packed = [_stage(upstream, "packed", "pack", "packed", "split", "truncated"), *taken]
    packed_tokens = [_stage(upstream, "packed", "pack", "packed"), *taken]
    documents = ledger("documents", sources, [read, encoded, *mixed, *packed])
    tokens = ledger("tokens", sources, [encoded, *mixed, *packed_tokens])
    _check_end(tokens.total[-1], packed[-1].accounts, upstream.packed)
    return [documents, tokens]


def _stage(upstream: Upstream, kind: str, stage: str, *passes: str) -> StageAccounts:
    hands_on = {"ingest": "read", "encode": "encoded", "mix": "mixed", "pack": "packed"}[stage]
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
