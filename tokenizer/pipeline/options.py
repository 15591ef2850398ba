"""The options of training a model; those of cutting text are in `training_options`."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from tokmill.tokenizer.components.specials import check_names
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.vocabulary import MAX_IDS, reserved_name

logger = logging.getLogger(__name__)

Score = Literal["likelihood", "frequency"]
Unknown = Literal["word", "part"]
TieBreak = Literal["lexicographic_max", "lowest_ids", "first_seen"]
Seed = Literal["substrings", "words", "bpe"]
Mode = Literal["pretokens", "sentencepiece"]
Letters = Literal["characters", "bytes"]
EndOfWord = Literal["attached", "apart"]
Segmentation = Literal["merges", "longest_first"]

_LEAST = MappingProxyType(
    {
        "min_frequency": 0,
        "max_token_bytes": 1,
        "num_reserved": 0,
        "seed_size": 0,
        "max_piece_length": 1,
        "max_input_chars_per_word": 1,
        "num_threads": 1,
        "count_unit": 1,
    }
)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of a model's training; a family rejects those that it does not use.

    Attributes:
        special_tokens: names, in the order of their ids.
        num_reserved: number of tokens `<|reserved_0|>`, ... after them.
        min_frequency: the least count of a learned string (byte-level BPE: of a merged pair).
        max_token_bytes: longer tokens are not made.
        tie_break: byte_bpe and word_bpe: which of the most frequent pairs comes first.
        seed: unigram: what the pieces are chosen from, `substrings` of the pre-tokens, whole `words`, or the
            pieces that BPE makes of them.
        seed_size: unigram: how many of them training begins with, beside all characters.
        shrinking_factor: unigram: the part of the pieces that a round of pruning keeps.
        character_coverage: unigram: the part of the text whose characters are pieces; rarer ones are
            unknown.
        max_piece_length: unigram: the most characters of a piece.
        num_threads: unigram: how many threads train; it does not change the result.
        count_unit: what one occurrence counts in the counts, which may be multiplied to hold fractions.
        score: wordpiece: which pair of pieces is joined next: that of the greatest `likelihood`, which is its
            frequency divided by those of its parts, or of the greatest `frequency`.
        unknown: wordpiece: what is unknown where no piece fits, the `word` or the `part`.
        max_input_chars_per_word: wordpiece: longer words are unknown as a whole.
        allow_smaller: whether text with too few pieces gives a smaller vocabulary, with a warning.
        byte_fallback: char_bpe, unigram: whether characters without a piece become their bytes, which are 256
            tokens, instead of the unknown token.
        mode: char_bpe, unigram: `sentencepiece` trains on whole sentences as the library of this name does;
            all options below are for it.
        split_by_unicode_script: see `sentences.words.PieceRules`, as for the next five.
        split_by_number: the same.
        split_digits: the same.
        split_by_whitespace: the same.
        allow_whitespace_only_pieces: the same.
        treat_whitespace_as_suffix: the same.
        user_defined_symbols: strings that are always one piece.
        unk_id: the id of the unknown token `<unk>`.
        bos_id: the id of `<s>`; -1 for none.
        eos_id: the id of `</s>`; -1 for none.
        pad_id: the id of `<pad>`; -1 for none.
        letters: word_bpe: what words are made of, `characters` or `bytes`, of which none is unknown.
        end_of_word: word_bpe: whether the mark `</w>` is `attached` to the last letter or stands `apart`.
        segmentation: word_bpe: whether words are encoded by `merges` or by the `longest_first`.

    Raises:
        TrainingError: an option is invalid.
        SpecialTokenError: a name is not valid for a special token.
    """

    special_tokens: Sequence[str] = ()
    num_reserved: int = 0
    min_frequency: int = 1
    max_token_bytes: int | None = None
    tie_break: TieBreak = "lexicographic_max"
    seed: Seed = "substrings"
    seed_size: int = 1_000_000
    shrinking_factor: float = 0.75
    character_coverage: float = 1.0
    max_piece_length: int = 16
    num_threads: int = 1
    count_unit: int = 1
    score: Score = "likelihood"
    unknown: Unknown = "word"
    max_input_chars_per_word: int = 100
    allow_smaller: bool = False
    byte_fallback: bool = False
    mode: Mode = "pretokens"
    split_by_unicode_script: bool = True
    split_by_number: bool = True
    split_digits: bool = False
    split_by_whitespace: bool = True
    allow_whitespace_only_pieces: bool = False
    treat_whitespace_as_suffix: bool = False
    user_defined_symbols: Sequence[str] = ()
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    letters: Letters = "characters"
    end_of_word: EndOfWord = "attached"
    segmentation: Segmentation = "merges"

    def __post_init__(self) -> None:
        check_choice("tie_break", self.tie_break, get_args(TieBreak))
        check_choice("score", self.score, get_args(Score))
        check_choice("unknown", self.unknown, get_args(Unknown))
        check_choice("seed", self.seed, get_args(Seed))
        check_choice("mode", self.mode, get_args(Mode))
        check_choice("letters", self.letters, get_args(Letters))
        check_choice("end_of_word", self.end_of_word, get_args(EndOfWord))
        check_choice("segmentation", self.segmentation, get_args(Segmentation))
        for name, most in (("shrinking_factor", 0.99), ("character_coverage", 1.0)):
            if not 0 < getattr(self, name) <= most:
                raise TrainingError(f"train: {name}={getattr(self, name)} must be above 0 and at most {most}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise TrainingError(f"train: {name}={value} must be at least {least}")
        if self.num_reserved > MAX_IDS:
            raise TrainingError(f"train: num_reserved={self.num_reserved} must be at most {MAX_IDS}")
        check_names(self.special_tokens, "special_tokens")
        check_names(self.names, "special_tokens and reserved tokens")
        _check_symbols(self.user_defined_symbols)

    @property
    def on_sentences(self) -> bool:
        """Whether training is on whole sentences, as sentencepiece does it."""
        return self.mode == "sentencepiece"

    @property
    def names(self) -> list[str]:
        """Special and reserved tokens, in the order of their ids."""
        return [*self.special_tokens, *map(reserved_name, range(self.num_reserved))]


def check_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse an option with an unknown value."""
    if value not in known:
        raise TrainingError(f"train: {name}={value!r} is not known; use one of {', '.join(known)}")


def refuse_tie_break(options: ModelOptions, rule: str) -> None:
    """Refuse another tie rule than the default, for families that have a rule of their own."""
    if options.tie_break != "lexicographic_max":
        raise TrainingError(f"train: tie_break={options.tie_break!r} is for {rule}; leave it out")


def accept_smaller(options: ModelOptions, error: TrainingError) -> None:
    """Warn of a vocabulary that is smaller than requested."""
    if not options.allow_smaller:
        raise error
    message = str(error).removeprefix("train: ")
    logger.warning("train: %s; allow_smaller=true, so the vocabulary is smaller", message)


def _check_symbols(symbols: Sequence[str]) -> None:
    if isinstance(symbols, str):
        raise TrainingError(
            f"train: user_defined_symbols={symbols!r:.200} must be a list; use [{symbols!r:.200}]"
        )
    seen = set[str]()
    for symbol in symbols:
        if not isinstance(symbol, str) or not symbol or symbol in seen:
            raise TrainingError(
                f"train: user_defined_symbols: {symbol!r:.200} must be a text that is not empty, named once"
            )
        seen.add(symbol)
