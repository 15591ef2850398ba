"""How texts are read for training on whole sentences: normalized, and cut into words at `▁`.

Each text is a sentence. Law: the words are those that sentencepiece's trainer counts. Symbols that users
defined are cut out of the normalized text, the longest at a place, and not counted.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.charsmap import IDENTITY, compile_rules, named_charsmap
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.specials import cut, whole
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.splitting import Pretokens, Splitter, compile_pattern

OWN_RULES = "user_defined"
"""What sentencepiece calls rules that are not its own."""

WHOLE_TEXT = r"[\s\S]+"
"""The pattern that cuts nothing."""

_WORDS, _WORDS_AFTER_BLANKS = "▁[^▁]*|[^▁]+", "▁+[^▁]*|[^▁]+"
_SUFFIXED, _WORDS_BEFORE_BLANKS = "[^▁]*▁|[^▁]+", "[^▁]*▁+|[^▁]+"


@dataclass(frozen=True, kw_only=True)
class SentenceText:
    """What becomes of a text before training on whole sentences.

    Attributes:
        normalizer: the name of SentencePiece's rules; None for none.
        add_dummy_prefix: whether a space is put before each text.
        remove_extra_whitespaces: whether spaces at both ends, and all but one of several, are removed.
        split_by_whitespace: whether words are counted, or whole texts.
        allow_whitespace_only_pieces: whether a word may begin with several `▁`.
        treat_whitespace_as_suffix: whether words end with `▁`, and the space is put after each text.
        user_defined_symbols: strings that are always a piece.
        normalization_rules: rules of one's own, strings with their texts, instead of named ones.

    Raises:
        TokenizerError: there are no rules of this name, both are given, or one of the rules cannot be used.
    """

    normalizer: str | None = None
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    split_by_whitespace: bool = True
    allow_whitespace_only_pieces: bool = False
    treat_whitespace_as_suffix: bool = False
    user_defined_symbols: tuple[str, ...] = ()
    normalization_rules: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.normalization_rules and self.normalizer is not None:
            raise TokenizerError(
                f"normalizer={self.normalizer!r} and normalization_rules exclude each other; leave one out"
            )
        self.charsmap()

    def charsmap(self) -> bytes:
        """Return the compiled rules."""
        if self.normalization_rules:
            return compile_rules(dict(self.normalization_rules))
        return named_charsmap(self.rule_name)

    @property
    def rule_name(self) -> str:
        """The name of the rules."""
        return OWN_RULES if self.normalization_rules else self.normalizer or IDENTITY

    @property
    def pattern(self) -> str:
        """The pattern that cuts normalized text into words."""
        if not self.split_by_whitespace:
            return WHOLE_TEXT
        if self.treat_whitespace_as_suffix:
            return _WORDS_BEFORE_BLANKS if self.allow_whitespace_only_pieces else _SUFFIXED
        return _WORDS_AFTER_BLANKS if self.allow_whitespace_only_pieces else _WORDS


def text_normalizer(text: SentenceText) -> SentenceNormalizer:
    """Return the normalizer, which the trained tokenizer has, too."""
    return SentenceNormalizer(
        text.rule_name,
        text.charsmap(),
        text.add_dummy_prefix,
        text.remove_extra_whitespaces,
        kept=text.user_defined_symbols,
        treat_whitespace_as_suffix=text.treat_whitespace_as_suffix,
    )


class SentenceSplitter:
    """Cuts normalized text into words, without the symbols that users defined; threads may share it."""

    def __init__(self, text: SentenceText) -> None:
        """Compile the pattern."""
        self._symbols = {symbol: i for i, symbol in enumerate(text.user_defined_symbols)}
        self._pattern = text.pattern

    @cached_property
    def _words(self) -> Splitter:
        return compile_pattern(self._pattern, "pattern")

    def split(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Pretokens:
        """Cut documents into words; see `Splitter.split`."""
        if not self._symbols:
            return self._words.split(data, offsets)
        segments = cut(data, whole(offsets), self._symbols)
        text = segments.kinds < 0
        found = self._words.split_segments(data, segments.bounds[:-1][text], segments.bounds[1:][text])
        numbers = np.zeros(text.shape[0], np.int64)
        numbers[text] = np.diff(found.offsets)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers)])
        return Pretokens(found.starts, found.ends, before[segments.documents])
