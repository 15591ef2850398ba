"""The model of byte-level BPE: a vocabulary that has every byte, and merges in the order of their ranks.

Laws: every byte is a token; a merge joins two tokens into the token of their joined bytes; no pair has two
    merges. With `ignore_merges` (as Hugging Face calls it; tiktoken always does so) a pre-token that is a
    token is that token, even if merging would not lead to it.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.byte_bpe.encoder import lay_out, make_encoder
from tokmill.tokenizer.byte_bpe.kernels.model import Model
from tokmill.tokenizer.components.specials import check_names
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.pair_tables import MAX_IDS, MAX_MERGES
from tokmill.tokenizer.pipeline.base_model import BaseModel, check_bytes
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.encoder import TilingEncoder

NAME = "byte_bpe"


@dataclass(frozen=True, eq=False)
class BytePairModel(BaseModel):
    """A byte-level BPE model.

    Attributes:
        vocabulary: the bytes of every id.
        merges: int32, shape (num_merges, 3): left id, right id, resulting id; in order of rank.
        ignore_merges: whether a pre-token that is a token is taken whole.

    Raises:
        VocabularyError: a byte is not a token, or there are too many ids or merges.
    """

    merges: NDArray[np.int32]
    ignore_merges: bool = False

    family = NAME

    def __post_init__(self) -> None:
        if not isinstance(self.ignore_merges, bool):
            raise VocabularyError(
                f"vocabulary: ignore_merges={self.ignore_merges!r:.80} must be true or false"
            )
        size = self.vocabulary.size
        if size > MAX_IDS or self.merges.shape[0] > MAX_MERGES:
            raise VocabularyError(
                f"vocabulary: {size} ids and {self.merges.shape[0]} merges are too many; "
                f"at most {MAX_IDS} ids and {MAX_MERGES} merges can be used"
            )
        check_bytes(self.byte_ids, "a byte-level vocabulary must hold them all")

    @classmethod
    def build(
        cls,
        vocabulary: Vocabulary,
        merges: Sequence[tuple[bytes, bytes]] | NDArray[np.int32],
        *,
        ignore_merges: bool = False,
    ) -> Self:
        """Build a model from merges as pairs of byte strings."""
        rows = merges if isinstance(merges, np.ndarray) else _resolve_merges(vocabulary.ids, merges)
        return cls(vocabulary, rows, ignore_merges)

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, spec: Mapping[str, Any]) -> Self:
        """Build a model from the result of `spec`."""
        tokens = {i: token for i, token in enumerate(vocabulary.tokens) if token}
        pairs = [(tokens[left], tokens[right]) for left, right in spec["merges"]]
        return cls.build(vocabulary, pairs, ignore_merges=spec["ignore_merges"])

    @cached_property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The merges as byte strings, in order of rank."""
        tokens = self.vocabulary.tokens
        return [(tokens[left], tokens[right]) for left, right, _ in self.merges.tolist()]

    @cached_property
    def byte_ids(self) -> NDArray[np.int32]:
        """int32, shape (256,): the id of each byte, or -1."""
        data, offsets = self.vocabulary.data, self.vocabulary.offsets
        lengths = np.diff(offsets)
        lengths[[*self.vocabulary.special_tokens.values()]] = 0
        singles = np.flatnonzero(lengths == 1)
        ids = np.full(256, -1, np.int32)
        ids[data[offsets[singles]]] = singles
        return ids

    def spec(self) -> dict[str, Any]:
        """Return the merges, and whether they are ignored for whole tokens."""
        return {"ignore_merges": self.ignore_merges, "merges": self.merges[:, :2].tolist()}

    @cached_property
    def tables(self) -> Model:
        """The tables for the kernels that encode; made once, and only read."""
        return lay_out(self)

    def encoder(self) -> TilingEncoder:
        """Make an encoder."""
        return make_encoder(self)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token."""
        return "byte" if len(token) == 1 else "merge"

    def figures(self) -> dict[str, int]:
        """Return the number of merges."""
        return {"num_merges": len(self.merges)}


def model_of(definition: Definition) -> BytePairModel:
    """Return the model of a definition that is known to be of this family."""
    return cast(BytePairModel, definition.model)


def define(
    tokens: Mapping[int, bytes],
    merges: Sequence[tuple[bytes, bytes]] | NDArray[np.int32],
    special_tokens: Mapping[str, int],
    *,
    num_reserved: int = 0,
    ignore_merges: bool = False,
    **how: Any,
) -> Definition:
    """Define a byte-level BPE tokenizer."""
    vocabulary = Vocabulary.build(tokens, special_tokens, num_reserved)
    for name, token in special_tokens.items():
        other = vocabulary.ids[name.encode()]
        if other != token:
            raise VocabularyError(
                f"vocabulary: {name.encode()!r} is a token under two ids (one is {other}); remove one of them"
            )
    model = BytePairModel.build(vocabulary, merges, ignore_merges=ignore_merges)
    return Definition.compose(model, **how)


def _resolve_merges(vocab: Mapping[bytes, int], pairs: Sequence[tuple[bytes, bytes]]) -> NDArray[np.int32]:
    """Turn pairs of byte strings into rows of ids."""
    ids: list[int] = []
    for rank, (left, right) in enumerate(pairs):
        try:
            ids += vocab[left], vocab[right], vocab[left + right]
        except KeyError as error:
            raise VocabularyError(
                f"vocabulary: merge {rank} joins {left!r} and {right!r}, but {error.args[0]!r} is not a token"
            ) from None
    if len(set(pairs)) < len(pairs):
        twice = next(pair for pair, number in Counter(pairs).items() if number > 1)
        raise VocabularyError(
            f"vocabulary: {twice[0]!r} and {twice[1]!r} are merged twice; keep the first merge"
        )
    return np.array(ids, np.int32).reshape(-1, 3)


Vocab: TypeAlias = Mapping[bytes, int] | Mapping[int, bytes]
Merges: TypeAlias = Sequence[tuple[bytes, bytes]]


def definition_of(
    vocab: Vocab, merges: Merges, special_tokens: Mapping[str, int] | Iterable[str], **how: Any
) -> Definition:
    """Build a definition; see `Tokenizer.from_vocab`."""
    tokens = _by_id(vocab)
    specials = _special_ids(tokens, special_tokens)
    names = {name.encode() for name in specials}
    return define(
        {token: text for token, text in tokens.items() if text not in names},
        [_checked_pair(rank, pair) for rank, pair in enumerate(merges)],
        specials,
        **how,
    )


def _by_id(vocab: Vocab) -> dict[int, bytes]:
    """Turn a vocabulary of either direction into bytes by id."""
    if not isinstance(vocab, Mapping):
        raise VocabularyError(
            f"vocab: {type(vocab).__name__} must be a mapping, of bytes to ids or of ids to bytes"
        )
    forward = all(isinstance(key, bytes) for key in vocab)
    tokens: dict[int, bytes] = {}
    for key, value in vocab.items():
        text, token = (key, value) if forward else (value, key)
        if not isinstance(text, bytes) or not isinstance(token, int):
            raise VocabularyError(
                f"vocab: {key!r}: {value!r} must be bytes and an integer id, in the same order in all entries"
            )
        if token in tokens:
            raise VocabularyError(
                f"vocab: {tokens[token]!r} and {text!r} have the same id {token}; give one of them another"
            )
        tokens[token] = text
    return tokens


def _special_ids(
    tokens: Mapping[int, bytes], special_tokens: Mapping[str, int] | Iterable[str]
) -> dict[str, int]:
    """Return the id of each special token: the given one, else the vocabulary's, else the next free one."""
    names = check_names(special_tokens, "special_tokens")
    if isinstance(special_tokens, Mapping):
        return {name: special_tokens[name] for name in names}
    known = {text: token for token, text in tokens.items()}
    free = itertools.count(max(tokens, default=-1) + 1)
    return {name: known[name.encode()] if name.encode() in known else next(free) for name in names}


def _checked_pair(rank: int, pair: Any) -> tuple[bytes, bytes]:
    parts = tuple(pair) if isinstance(pair, tuple | list) else ()
    if len(parts) != 2 or not all(isinstance(part, bytes) for part in parts):
        raise VocabularyError(
            f"merges: merge {rank} is {pair!r:.80}, but must be a pair of byte strings such as (b't', b'he')"
        )
    return cast(tuple[bytes, bytes], parts)
