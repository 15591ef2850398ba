"""What families have in common: how models show tokens, what they refuse, and training by prefixes."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TrainingError, VocabularyError
from tokmill.tokenizer.core.text import readable
from tokmill.tokenizer.core.vocabulary import MAX_IDS, Vocabulary
from tokmill.tokenizer.kernels.pair_tables import MAX_MERGES
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller

UNKNOWN = "[UNK]"

_NO_PROBES: Mapping[str, str] = MappingProxyType({})
UNKNOWN_PROBES = MappingProxyType({"unknown": "\U000f0000\U000f0001 \U000f0002a"})
"""A text that is unlikely to be in any vocabulary: private-use characters."""


@dataclass(frozen=True, eq=False)
class BaseModel:
    """A model as far as most families have it; see `pipeline.model.Model`."""

    vocabulary: Vocabulary

    @property
    def unknown_token(self) -> str | None:
        """The special token for text that is not in the vocabulary; None if it covers all text."""
        return None

    @property
    def unknown_id(self) -> int:
        """The id of the unknown token; -1 without one."""
        return -1 if self.unknown_token is None else self.vocabulary.special_tokens[self.unknown_token]

    def with_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Return the same model with other special tokens."""
        return replace(self, vocabulary=vocabulary)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token."""
        return "byte" if len(token) == 1 else "piece"

    def kinds(self) -> list[str]:
        """Return the kind of every id: one of `kind`, `byte`, `unknown`, `special`, `reserved` or `hole`."""
        kinds = self.vocabulary.kinds(self.kind)
        if self.unknown_token is not None:
            kinds[self.unknown_id] = "unknown"
        for token in self.vocabulary.byte_ids:
            kinds[token] = "byte"
        return kinds

    def readable(self, token: int) -> str:
        """Return a token as one line of text; a part of a character is written as its bytes."""
        return readable(self.vocabulary.tokens[token])

    def figures(self) -> dict[str, int]:
        """Return the number of pieces."""
        return {"num_pieces": sum(1 for _ in self.vocabulary.ordinary())}

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the pre-tokens: nothing is lost."""
        return list(pretokens)

    def probes(self) -> Mapping[str, str]:
        """Return a text that is unknown; none if no text is."""
        return _NO_PROBES if self.unknown_token is None else UNKNOWN_PROBES


@dataclass(frozen=True, eq=False)
class MergeModel(BaseModel):
    """A model of merges; `merges`: int32, shape (num_merges, 3): left, right and resulting id, by rank."""

    merges: NDArray[np.int32]

    @cached_property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The merges as byte strings, in order of rank."""
        tokens = self.vocabulary.tokens
        return [(tokens[left], tokens[right]) for left, right, _ in self.merges.tolist()]

    def figures(self) -> dict[str, int]:
        """Return the number of merges."""
        return {"num_merges": len(self.merges)}

    def check_size(self, most: int) -> None:
        """Refuse more ids, or more merges than can be used."""
        if self.vocabulary.size > most or len(self.merges) > MAX_MERGES:
            raise VocabularyError(
                f"vocabulary: {self.vocabulary.size} ids and {len(self.merges)} merges are too many; at most "
                f"{most} ids and {MAX_MERGES} merges can be used"
            )

    @staticmethod
    def rows(ids: Mapping[bytes, int], pairs: Sequence[tuple[bytes, bytes]]) -> NDArray[np.int32]:
        """Turn pairs of byte strings into rows of ids."""
        found: list[int] = []
        for rank, (left, right) in enumerate(pairs):
            try:
                found += ids[left], ids[right], ids[left + right]
            except KeyError as error:
                raise VocabularyError(
                    f"vocabulary: merge {rank} joins {left!r:.200} and {right!r:.200}, but "
                    f"{error.args[0]!r:.200} is not a token"
                ) from None
        if len(set(pairs)) < len(pairs):
            twice = next(pair for pair, number in Counter(pairs).items() if number > 1)
            raise VocabularyError(
                f"vocabulary: {twice[0]!r} and {twice[1]!r} are merged twice; keep the first merge"
            )
        return np.array(found, np.int32).reshape(-1, 3)


def least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of `[UNK]`, the special and reserved tokens, and one other."""
    return len({UNKNOWN, *special_tokens}) + num_reserved + 1


def names_of(options: ModelOptions) -> list[str]:
    """Return `[UNK]`, the special and the reserved tokens."""
    return list(dict.fromkeys([UNKNOWN, *options.names]))


def piece_vocabulary(
    pieces: Sequence[bytes], options: ModelOptions, *, byte_fallback: bool = False
) -> Vocabulary:
    """Give ids: `[UNK]` is 0, then with `byte_fallback` the bytes, pieces, and the names but `[UNK]`."""
    bytes_ = [bytes([byte]) for byte in range(256)] if byte_fallback else []
    first = 1 + len(bytes_)
    _, *others = names_of(options)
    specials = {UNKNOWN: 0} | {name: first + len(pieces) + i for i, name in enumerate(others)}
    tokens = dict(enumerate([*bytes_, *pieces], start=1))
    return Vocabulary.build(tokens, specials, options.num_reserved, range(1, first))


def numbers_of(vocab_sizes: Sequence[int], fixed: Mapping[str, int], always: int = 0) -> list[int]:
    """Return how many pieces vocabularies have room for, beside what is `fixed`, numbers by name.

    Raises:
        TrainingError: one has no room for `always` pieces that are there in any case, and one more.
    """
    least = sum(fixed.values()) + always + 1
    for size in vocab_sizes:
        if size < least:
            parts = [f"{number} {what}" for what, number in fixed.items() if number]
            parts += [f"{always} pieces that are always there"] * bool(always)
            raise TrainingError(
                f"train: vocab_size={size} is too small for {', '.join(parts)}, and one piece; use at least "
                f"{least}"
            )
    return [size - sum(fixed.values()) for size in vocab_sizes]


class PrefixTraining(ABC):
    """Trains vocabularies that are prefixes of the largest; see `pipeline.model.Trainer`."""

    def __init__(
        self, options: ModelOptions, vocab_sizes: Sequence[int], fixed: Mapping[str, int], always: int = 0
    ) -> None:
        """Refuse sizes without room for a piece; see `numbers_of`."""
        self.options, self._fixed = options, sum(fixed.values())
        self._numbers = numbers_of(vocab_sizes, fixed, always)

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them."""
        wanted = max(self._numbers)
        made = self.learn(wanted, progress)
        if not made:
            raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
        if made < wanted:
            size, enough = self._fixed + wanted, self._fixed + made
            error = TrainingError(
                f"train: the corpus has {made} pieces, but vocab_size={size} needs {wanted}; lower "
                f"vocab_size to {enough}, or add text"
            )
            accept_smaller(self.options, error)
        return [self.model(number) for number in self._numbers]

    @abstractmethod
    def learn(self, number: int, progress: Progress | None) -> int:
        """Learn pieces; return how many there are."""

    @abstractmethod
    def model(self, number: int) -> Model:
        """Make the model of the first pieces."""


SPECIAL = "special and reserved tokens"
SPECIAL_WITH_UNKNOWN = f"{SPECIAL}, {UNKNOWN} among them"


def check_unknown(vocabulary: Vocabulary, unknown_token: str | None) -> None:
    """Refuse an unknown token that is not a special token."""
    if unknown_token not in vocabulary.special_tokens:
        raise VocabularyError(
            f"vocabulary: the unknown token {unknown_token!r:.200} must be one of the special tokens"
        )


def check_size(vocabulary: Vocabulary, most: int = MAX_IDS) -> None:
    """Refuse a vocabulary with too many ids."""
    if vocabulary.size > most:
        raise VocabularyError(f"vocabulary: {vocabulary.size} ids are too many; at most {most} can be used")


def check_bytes(byte_ids: NDArray[np.int32], needs: str) -> None:
    """Refuse a vocabulary without a token for each byte."""
    missing = np.flatnonzero(byte_ids < 0)
    if missing.shape[0]:
        raise VocabularyError(
            f"vocabulary: {missing.shape[0]} of the 256 bytes are not tokens (the first is "
            f"{int(missing[0]):#04x}), but {needs}"
        )


def check_pieces(pieces: Iterable[tuple[int, bytes]]) -> None:
    """Refuse pieces of characters that are not UTF-8."""
    for i, token in pieces:
        try:
            token.decode()
        except UnicodeDecodeError:
            raise VocabularyError(
                f"vocabulary: the piece {token!r:.200} of id {i} is not UTF-8, so no text has it"
            ) from None
