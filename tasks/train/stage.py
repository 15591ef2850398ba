"""train: a tokenizer from pre-token counts and a balance.

Each source's counts are multiplied by its factor (and by the balance's resolution, which keeps rounding
errors small), and a vocabulary is learned from their sum; no text is read. Each source's share of the
weighted pre-tokens' bytes is recorded as `share.SOURCE`. The stage publishes a tokenizer artifact
(`tasks.formats.tokenizer`) with exports, each of which was loaded and gave the same ids for the probes.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from tokmill.tasks.core.stage import Outcome, Stage
from tokmill.tasks.count.stage import CountParams
from tokmill.tasks.store.fingerprint import UNLESS_DEFAULT, either, only_with
from tokmill.tasks.train.learning import learn, publish
from tokmill.tasks.train.memory import memory_of
from tokmill.tasks.train.special import SpecialParams, check_role_names, check_text_templates
from tokmill.tokenizer.core.vocabulary import MAX_IDS
from tokmill.tokenizer.pipeline.families import FamilyName, check_mode, find_family
from tokmill.tokenizer.pipeline.options import ModelOptions

_UNIGRAM, _WORDPIECE = only_with("family", "unigram"), only_with("family", "wordpiece")
_UNIGRAM_OR_SENTENCES = either(_UNIGRAM, only_with("mode", "sentencepiece"))
_WORD_BPE = only_with("family", "word_bpe")


class TrainParams(SpecialParams):
    """The vocabulary to learn, and how text is cut into pre-tokens."""

    vocab_size: int = Field(
        default=32_000,
        ge=2,
        le=MAX_IDS,
        description="Tokens in the vocabulary, special and reserved ones included. byte_bpe has exactly this "
        "many, 256 bytes among them, so at least 257, and so has longest_match; char_bpe, unigram, word_bpe "
        "and wordpiece, too, the characters of the text among them. word_level and character_level have at "
        "most this many: fewer if the text has fewer words or characters.",
    )
    family: FamilyName = Field(
        default="byte_bpe",
        description="The kind of tokenizer: byte-level BPE; char_bpe, BPE over characters (Sennrich et al. "
        "2016); longest_match, at each place the longest token, as in RWKV's vocabulary; unigram, the most "
        "probable pieces (Kudo 2018); word_bpe, BPE over words with a mark at their ends; wordpiece, whose "
        "pieces make up words without their spaces; or the baselines whose tokens are whole words or single "
        "characters. All but byte_bpe and longest_match have [UNK] for what they do not know, word_bpe only "
        "if its letters are characters.",
    )
    num_reserved: int = Field(
        default=0,
        ge=0,
        le=1 << 20,
        description="Special tokens <|reserved_0|>, <|reserved_1|>, … kept for later use.",
    )
    min_frequency: int = Field(
        default=1,
        ge=1,
        description="Pairs (or words, or characters) that occur less often, after balancing, do not become "
        "tokens.",
    )
    min_pretoken_frequency: int = Field(
        default=1,
        ge=1,
        lt=1 << 32,
        description="Pre-tokens that occur less often, after balancing, are left out of training, which "
        "saves memory. Where words have spaces, up to half of the pre-tokens occur once and make up 1 to 5 % "
        "of the text; where they have none, as in Japanese, it may be most of the text.",
        json_schema_extra=UNLESS_DEFAULT,
    )
    max_token_bytes: int | None = Field(
        default=None,
        ge=2,
        lt=1 << 31,
        description="Longer pairs and words do not become tokens; empty for no limit.",
    )
    tie_break: Literal["lexicographic_max", "lowest_ids", "first_seen"] = Field(
        default="lexicographic_max",
        description="Which of equally frequent pairs is merged first: the greatest pair of byte strings; the "
        "lowest ids, as Hugging Face does; or the one that occurs first, in the pre-tokens sorted by bytes.",
    )

    allow_smaller: bool = Field(
        default=False,
        description="Text with too few pieces for vocab_size gives a smaller vocabulary, with a warning, "
        "instead of an error.",
        json_schema_extra=only_with("allow_smaller", True),
    )
    byte_fallback: bool = Field(
        default=False,
        description="char_bpe and unigram: 256 tokens are bytes, and characters without a piece become "
        "theirs instead of being unknown.",
        json_schema_extra=only_with("byte_fallback", True),
    )
    seed: Literal["substrings", "words", "bpe"] = Field(
        default="substrings",
        description="unigram: what pieces are chosen from: substrings of pre-tokens, whole pre-tokens, or "
        "the pieces that BPE makes of them.",
        json_schema_extra=_UNIGRAM,
    )
    seed_size: int = Field(
        default=1_000_000,
        ge=0,
        lt=1 << 31,
        description="unigram: how many pieces training begins with, beside all characters.",
        json_schema_extra=_UNIGRAM,
    )
    shrinking_factor: float = Field(
        default=0.75,
        gt=0,
        le=0.99,
        description="unigram: the part of the pieces that each round of pruning keeps.",
        json_schema_extra=_UNIGRAM,
    )
    character_coverage: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="unigram, and mode sentencepiece: the part of the text whose characters are pieces; "
        "rarer ones are unknown.",
        json_schema_extra=_UNIGRAM_OR_SENTENCES,
    )
    max_piece_length: int = Field(
        default=16,
        ge=1,
        lt=1 << 31,
        description="unigram, and mode sentencepiece: the most characters of a piece.",
        json_schema_extra=_UNIGRAM_OR_SENTENCES,
    )
    score: Literal["likelihood", "frequency"] = Field(
        default="likelihood",
        description="wordpiece: which pair of pieces is joined next: that of the greatest likelihood, its "
        "frequency divided by those of its parts, or of the greatest frequency.",
        json_schema_extra=_WORDPIECE,
    )
    unknown: Literal["word", "part"] = Field(
        default="word",
        description="wordpiece: what becomes [UNK] where no piece fits: the word, as in BERT, or the part.",
        json_schema_extra=_WORDPIECE,
    )
    max_input_chars_per_word: int = Field(
        default=100,
        ge=1,
        lt=1 << 31,
        description="wordpiece: longer words become [UNK].",
        json_schema_extra=_WORDPIECE,
    )
    letters: Literal["characters", "bytes"] = Field(
        default="characters",
        description="word_bpe: what words are made of: characters, of which unseen ones become [UNK], or "
        "bytes, as in CLIP.",
        json_schema_extra=_WORD_BPE,
    )
    end_of_word: Literal["attached", "apart"] = Field(
        default="attached",
        description="word_bpe: whether the mark is attached to the last letter of a word, as in subword-nmt "
        "and Hugging Face's tokenizers, or stands apart as a piece of its own, as in Sennrich et al. 2016.",
        json_schema_extra=_WORD_BPE,
    )
    segmentation: Literal["merges", "longest_first"] = Field(
        default="merges",
        description="word_bpe: how words are encoded: by the merges in the order of training, or by the "
        "longest pieces first.",
        json_schema_extra=_WORD_BPE,
    )

    @classmethod
    def without_effect(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings of other families, and of another mode."""
        family, mode = (given.get(name, cls.model_fields[name].default) for name in ("family", "mode"))
        found = {}
        for name, field in cls.model_fields.items():
            extra = field.json_schema_extra
            reasons = [
                f"the {chosen} is '{value}'"
                for chosen, value in (("family", family), ("mode", mode))
                if chosen != name and value not in _values_of(extra, chosen, value)
            ]
            if reasons and len(reasons) == len(_conditions(extra)):
                found[name] = reasons[0]
        return found

    @model_validator(mode="after")
    def _check_vocab_size(self) -> Self:
        least = find_family(self.family).least_vocab_size(self.special_tokens, self.num_reserved)
        if self.vocab_size < least:
            num_names = len(self.special_tokens) + self.num_reserved
            raise ValueError(
                f"vocab_size={self.vocab_size} must be at least {least} (family='{self.family}', special "
                f"and reserved tokens: {num_names}); use e.g. {max(32_000, least)}"
            )
        return self

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        own = {field.name for field in fields(ModelOptions)} & type(self).model_fields.keys()
        options = ModelOptions(**{name: getattr(self, name) for name in own})
        find_family(self.family).check_options(options)
        check_mode(self.mode, self.family)
        check_role_names(self.roles, self.special_tokens, self.num_reserved)
        check_text_templates(self, self.num_reserved)
        return self

    def count_params(self) -> CountParams:
        """The parameters of `count` for this tokenizer; tokenizers that cut text alike share them."""
        given = {name: getattr(self, name) for name in CountParams.model_fields}
        return CountParams(**given | {"special_tokens": self.cut.special_tokens})


def _conditions(extra: object) -> list[dict[str, Any]]:
    """Return the conditions of a setting, any of which lets it have an effect."""
    found = extra if isinstance(extra, dict) else {}
    conditions: list[dict[str, Any]] = found.get("either", [])
    return [found["only_with"]] if "only_with" in found else conditions


def _values_of(extra: object, field: str, default: object) -> list[object]:
    """Return the values of another setting that a setting goes with; all if it does not depend on it."""
    found = [condition["values"] for condition in _conditions(extra) if condition["field"] == field]
    return found[0] if found else [default]


def run(params: TrainParams, *, out: Path, counts: Path, balance: Path) -> Outcome:
    """Train a tokenizer into `out`.

    Args:
        params: see `TrainParams`.
        out: the artifact's directory.
        counts: the counts artifact.
        balance: the balance artifact.

    Raises:
        TrainingError, BalanceError: see `learning.learn`.
        TokenizerError: an export does not encode the probes as the tokenizer does.
    """
    learned = learn(params, counts, balance, [params.vocab_size])
    return publish(learned.tokenizers[0], learned, out)


def revision_of(params: TrainParams) -> int:
    """Return the revision of the family, so that a change of one family leaves the others' artifacts."""
    return find_family(params.family).revision


TRAIN = Stage(
    verb="train",
    task="train",
    kind="tokenizer",
    version=4,
    params=TrainParams,
    run=run,
    revision=revision_of,
    memory=memory_of,
)
