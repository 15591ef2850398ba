"""How texts are read for training on whole sentences: normalized, and cut into words at `▁`.

Each text is a sentence. Law: the words are those that sentencepiece's trainer counts. Symbols that users
defined are cut out of the normalized text, the longest at a place, and not counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.charsmap import IDENTITY, compile_rules, named_charsmap
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.components.specials import cut, whole
from tokmill.tokenizer.core.errors import TokenizerError, TrainingError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.options import ModelOptions
from tokmill.tokenizer.sentences.words import PieceRules
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


UNKNOWN, BEGIN, END, PAD = "<unk>", "<s>", "</s>", "<pad>"
ROLES = MappingProxyType({"bos": BEGIN, "eos": END, "pad": PAD})
"""Names by role."""


@dataclass(frozen=True)
class Layout:
    """A vocabulary with scores.

    Attributes:
        vocabulary: the bytes of every id.
        scores: float64, shape (vocab_size,); 32-bit numbers, 0 for ids that are not learned.
        frozen: the ids of the symbols that users defined.
    """

    vocabulary: Vocabulary
    scores: NDArray[np.float64]
    frozen: tuple[int, ...]


class Symbols:
    """The ids that are not learned.

    Attributes:
        special_tokens: ids by name.
        user_defined: ids by symbol.
        byte_ids: the ids of the 256 bytes, by byte; none without `byte_fallback`.
    """

    def __init__(self, options: ModelOptions) -> None:
        """Give ids to all symbols."""
        self.special_tokens = _named(options)
        self.user_defined, self.byte_ids = dict[str, int](), list[int]()
        self._next = 0
        for name in options.names:
            if name not in self.special_tokens:
                self.special_tokens[name] = self._free()
        for symbol in options.user_defined_symbols:
            if symbol in self.special_tokens:
                raise TrainingError(
                    f"train: {symbol!r:.200} is a special token and in user_defined_symbols; leave one out"
                )
            self.user_defined[symbol] = self._free()
        for _ in range(256 if options.byte_fallback else 0):
            self.byte_ids.append(self._free())

    def __len__(self) -> int:
        return len(self._taken())

    def _taken(self) -> set[int]:
        return {*self.special_tokens.values(), *self.user_defined.values(), *self.byte_ids}

    def _free(self) -> int:
        taken = {*self.special_tokens.values()}  # the others follow each other
        while self._next in taken:
            self._next += 1
        self._next += 1
        return self._next - 1

    @property
    def names(self) -> set[str]:
        """Strings that no learned piece may be."""
        return {*self.special_tokens, *self.user_defined}

    def lay_out(self, learned: Sequence[tuple[bytes, float]], num_reserved: int) -> Layout:
        """Give the ids that are left to learned pieces, in order."""
        taken = self._taken()
        size = len(taken) + len(learned)
        if max(taken) >= size:
            raise TrainingError(
                f"train: the id {max(taken)} is too great for a vocabulary of {size}; use ids below {size}"
            )
        free = [i for i in range(size) if i not in taken]
        tokens = {i: piece for i, (piece, _) in zip(free, learned, strict=True)}
        tokens |= {i: symbol.encode() for symbol, i in self.user_defined.items()}
        tokens |= {i: bytes([byte]) for byte, i in enumerate(self.byte_ids)}
        scores = np.zeros(size, np.float32)
        scores[free] = [score for _, score in learned]
        vocabulary = Vocabulary.build(tokens, self.special_tokens, num_reserved, self.byte_ids)
        return Layout(vocabulary, scores.astype(np.float64), tuple(self.user_defined.values()))


def _named(options: ModelOptions) -> dict[str, int]:
    """Return the tokens whose ids the options say; those with a negative id do not exist."""
    given = {UNKNOWN: options.unk_id, BEGIN: options.bos_id, END: options.eos_id, PAD: options.pad_id}
    found = {name: i for name, i in given.items() if i >= 0}
    if UNKNOWN not in found:
        raise TrainingError(f"train: unk_id={options.unk_id} must be 0 or more; use e.g. 0")
    if len({*found.values()}) < len(found):
        raise TrainingError(
            f"train: unk_id, bos_id, eos_id and pad_id are {[*given.values()]}, but must differ, or be -1"
        )
    return found


def piece_rules(options: ModelOptions) -> PieceRules:
    """Return the rules for pieces that options stand for."""
    names = {rule.name for rule in fields(PieceRules)} - {"longest"}
    return PieceRules(longest=options.max_piece_length, **{name: getattr(options, name) for name in names})


def too_small(vocab_size: int, symbols: int, characters: int, coverage: float) -> TrainingError:
    """Return the error of a vocabulary that has no room for its characters."""
    return TrainingError(
        f"train: vocab_size={vocab_size} is too small for {characters} characters and {symbols} special "
        f"tokens, symbols and bytes; use at least {symbols + characters}, or lower "
        f"character_coverage={coverage}"
    )
