"""The facts of a data card: `card.json` is `CardFacts`.

Nothing in it depends on when, where or by whom the data was made, or on cached artifacts: the
same data gives the same card. `tasks.card.gathering` shows where each fact comes from.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from tokmill.tasks.card.conservation import AccountTable
from tokmill.tasks.core.stage import WithOptional
from tokmill.tasks.formats.packed.manifest import PackedShare
from tokmill.tasks.store.record import Record


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SourceFacts(_Facts):
    """One source, from its text to its tokens in the sequences.

    Attributes:
        note: the user's note on it.
        text_share: its part of the corpus' bytes of text.
        balanced_share: its share of the tokenizer's training text by the balance, in the balance's unit;
            None if an existing tokenizer was taken.
        training_share: its part of the weighted bytes that the tokenizer was trained on; likewise.
        training_factor: how often its text counted there.
        training_capped: whether the balance's limit bound.
        num_tokens: tokens of its documents, end tokens included.
        token_share: its part of all such tokens.
        requested_share: its requested share of the mixture's tokens.
        mixed_share: its part of the mixture's tokens.
        mixed_tokens: its tokens in the mixture, repetitions included.
        read_before_tokens: its tokens that were read in the run before this mixture.
        epochs: `mixed_tokens` / `num_tokens`.
        limits: whether its repetition limit bound the mixture.
        renyi_efficiency: of its ordinary tokens; see `tasks.audit.entropy.renyi_efficiency`.
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
    vocabulary_used: float | None
    renyi_efficiency: float | None


class SourceFile(_Facts):
    """One of the first files of a source."""

    source: str
    name: str  # relative to the source's root
    size_bytes: int
    digest: str  # SHA-256 of the file as it lay there


class TokenizerFacts(_Facts, WithOptional):
    """The tokenizer.

    Attributes:
        origin: whether it was trained on this corpus.
        num_merges: merges of a byte-level BPE tokenizer.
        family: the family of its model.
        figures: counts that describe a model of another family.
        unknown_token: the token for text that is not in the vocabulary; None if it covers all text.
        num_unknown_tokens, unknown_share: how often that is in the encoded text, and over its tokens of text.
        bytes_per_token: of the encoded text, each document once.
        audited_bytes_per_token: of the text that the audit read, which is `audited_text`.
        roles: special tokens by role, e.g. `eos`.
        chat_templates: texts by name.
    """

    optional = frozenset(
        {
            *("num_merges", "family", "figures", "unknown_token", "num_unknown_tokens", "unknown_share"),
            *("roles", "chat_templates"),
        }
    )

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
    audited_bytes_per_token: float | None
    audited_text: Literal["held_out", "corpus"]
    chars_per_token: float | None
    vocabulary_used: float | None
    num_never_encoded_tokens: int
    renyi_efficiency: float | None
    gate: str
    family: str = "byte_bpe"
    figures: dict[str, int] = {}
    unknown_token: str | None = None
    num_unknown_tokens: int | None = None
    unknown_share: float | None = None
    roles: dict[str, str] = {}
    chat_templates: dict[str, str] = {}


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
        warnings: the requests that it misses by more than the tolerance.
        bytes_per_token: of its sources' text, each at its share of the mixture; tokens that begin and end
            documents are left out, as in all such figures.
    """

    method: str
    temperature: float | None
    seed: int
    num_documents: int
    num_tokens: int
    first_position: int
    warnings: list[str]
    bytes_per_token: float | None


class PackedFacts(_Facts):
    """The sequences."""

    sequence_length: int
    num_sequences: int
    num_tokens: int
    num_padding_tokens: int
    fill: float  # part of the sequences that is not padding
    strategy: str
    long_documents: str | None
    last_sequence: str | None
    formats: list[str]
    dtype: str
    pad_id: int
    end_of_document_id: int | None
    num_shards: int
    documents: dict[str, int]  # number of the mixture's documents by end; see `tasks.packing.accounts`
    shares: list[PackedShare]  # the sources' shares before and after packing; see `tasks.packing.accounts`
    share_block_sequences: int | None  # sequences in each of the blocks whose shares were measured


class ArtifactFacts(_Facts):
    """One artifact that the card is about, by its content: its size depends on the library that wrote it."""

    kind: str
    content_digest: str
    num_files: int

    @classmethod
    def of(cls, record: Record) -> "ArtifactFacts":
        """The facts of a record."""
        return cls(
            kind=record.kind,
            content_digest=record.content_digest,
            num_files=len(record.files),
        )


class HeldOutSource(_Facts):
    """The documents of a source that are held out of training."""

    source: str
    num_documents: int
    num_bytes: int
    share: float  # their part of the source's documents
    num_tokens: int  # tokens of those that were encoded, end tokens included


class ValidationFacts(_Facts):
    """The documents that are held out of training, and their sequences."""

    sources: list[HeldOutSource]
    sequence_length: int
    num_sequences: int
    num_tokens: int
    num_padding_tokens: int
    strategy: str
    ledgers: list[AccountTable]  # the accounts of documents, from the files to these sequences, and of tokens
    artifacts: list[ArtifactFacts]  # the artifacts that they are in


class CardFacts(_Facts, WithOptional):
    """The content of `card.json`.

    Attributes:
        languages: codes of ISO 639, as given.
        tags: for hubs, as given.
        files: the first files of each source.
        validation: the documents that are held out of training; None if there are none.
        ledgers: the accounts of documents and of tokens; they have nothing to do with `tasks.formats.ledger`.
    """

    optional = frozenset({"validation"})

    title: str
    description: str
    license: str
    languages: list[str]
    tags: list[str]
    sources: list[SourceFacts]
    files: list[SourceFile]
    tokenizer: TokenizerFacts
    balance: BalanceFacts | None
    mixture: MixtureFacts
    packed: PackedFacts
    ledgers: list[AccountTable]
    artifacts: list[ArtifactFacts]
    validation: ValidationFacts | None = None
