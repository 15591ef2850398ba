"""A closed vocabulary: every string that it does not have becomes the one unknown token.

A family defines its strings (`Cut`): pre-tokens for `word_level`, characters for `character_level`.

Laws: a string that is a token becomes that token, any other the unknown token, whatever
    its neighbours are; the bytes of the known tokens and of the strings that became unknown add up to the
    normalized text. Decoding gives the known strings back, and the unknown token's name (`[UNK]`) for each
    other one: that text is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from tokmill.tokenizer.closed_vocabulary.encoder import ClosedEncoder, Cut
from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.text import readable
from tokmill.tokenizer.core.vocabulary import MAX_IDS, Vocabulary
from tokmill.tokenizer.splitting import Pretokens

UNKNOWN = "[UNK]"
_PROBES = MappingProxyType({"unknown": "\U000f0000\U000f0001 \U000f0002a"})


@dataclass(frozen=True, eq=False)
class ClosedModel:
    """A model of a closed vocabulary.

    Attributes:
        family: the family's name.
        kind: the family's name for its tokens: `word`, `character`.
        cut: cuts pre-tokens into strings.
        vocabulary: the bytes of every id; the unknown token is one of its special tokens.
        unknown_token: the name of the unknown token.

    Raises:
        VocabularyError: the unknown token is not a special token, or there are too many ids.
    """

    family: str
    kind: str
    cut: Cut
    vocabulary: Vocabulary
    unknown_token: str = UNKNOWN

    def __post_init__(self) -> None:
        if self.unknown_token not in self.vocabulary.special_tokens:
            raise VocabularyError(
                f"vocabulary: the unknown token {self.unknown_token!r:.200} must be one of the special tokens"
            )
        if self.vocabulary.size > MAX_IDS:
            raise VocabularyError(
                f"vocabulary: {self.vocabulary.size} ids are too many; at most {MAX_IDS} can be used"
            )

    @property
    def unknown_id(self) -> int:
        """The id of the unknown token."""
        return self.vocabulary.special_tokens[self.unknown_token]

    def spec(self) -> dict[str, Any]:
        """Return the name of the unknown token; everything else is in the vocabulary."""
        return {"unknown_token": self.unknown_token}

    def with_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Return the same model with other special tokens."""
        return replace(self, vocabulary=vocabulary)

    def encoder(self) -> ClosedEncoder:
        """Make an encoder."""
        return ClosedEncoder(self.vocabulary, self.unknown_id, self.cut)

    def kinds(self) -> list[str]:
        """Return the kind of every id: the family's own, `unknown`, `special`, `reserved` or `hole`."""
        kinds = self.vocabulary.kinds(lambda _: self.kind)
        kinds[self.unknown_id] = "unknown"
        return kinds

    def readable(self, token: int) -> str:
        """Return a token as one line of text."""
        return readable(self.vocabulary.tokens[token])

    def figures(self) -> dict[str, int]:
        """Return the number of words, or characters, in the vocabulary."""
        return {f"num_{self.kind}s": sum(1 for _ in self.vocabulary.ordinary())}

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the known strings, and the unknown token's name for each other one."""
        data, offsets = pack_bytes(list(pretokens))
        whole = Pretokens(offsets[:-1], offsets[1:], np.array([0, len(pretokens)]))
        known = {token for _, token in self.vocabulary.ordinary()}
        ends = np.concatenate([np.zeros(1, np.int64), self.cut(data, whole).ends])
        strings = unpack(data, ends)
        return [string if string in known else self.unknown_token.encode() for string in strings]

    def probes(self) -> Mapping[str, str]:
        """Return a text that is unlikely to be in any vocabulary: private-use characters."""
        return _PROBES
