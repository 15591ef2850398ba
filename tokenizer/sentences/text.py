"""How texts are read for training on whole sentences: normalized, and cut into words at `▁`.

Each text is a sentence. Law: the words are those that sentencepiece's trainer counts. Symbols that users
defined are cut out of the normalized text, the longest at a place, and not counted.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.specials import cut, whole
from tokmill.tokenizer.sentences.options import SentenceText
from tokmill.tokenizer.splitting import Pretokens, Splitter, compile_pattern


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
