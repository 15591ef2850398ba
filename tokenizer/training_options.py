"""The options of a training, except the size of the vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from tokmill.tokenizer.components.normalizers import steps_of
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import DEFAULT_FAMILY, FAMILIES, find_family
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.pipeline.options import ModelOptions, Score, Seed, TieBreak, Unknown, check_choice
from tokmill.tokenizer.splitting import Digits, PatternLike, compile_pattern, resolve


class TrainingOptions(TypedDict, total=False):
    """The keywords of a training; `TrainingPlan` describes them and has their defaults."""

    family: str
    split_pattern: PatternLike
    digits: Digits
    normalizer: str | None
    special_tokens: Sequence[str]
    num_reserved: int
    min_frequency: int
    max_token_bytes: int | None
    tie_break: TieBreak
    seed: Seed
    seed_size: int
    shrinking_factor: float
    character_coverage: float
    max_piece_length: int
    count_unit: int
    score: Score
    unknown: Unknown
    max_input_chars_per_word: int


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(ModelOptions):
    """Checked options: those of the model, and of cutting the text.

    Attributes:
        family: one of `pipeline.families.FAMILIES`.
        split_pattern: how text is cut into pre-tokens.
        digits: how digits are cut.
        normalizer: applied to text first.

    Raises:
        TrainingError: an option is invalid.
        TokenizerError: a pattern, a normalizer or a name of a special token is invalid.
    """

    family: str = DEFAULT_FAMILY
    split_pattern: PatternLike = "gpt2"
    digits: Digits = "pattern"
    normalizer: str | None = None

    def __post_init__(self) -> None:
        check_choice("family", self.family, list(FAMILIES))
        super().__post_init__()
        resolve(self.split_pattern, self.digits)
        steps_of(self.normalizer)

    def definition(self, model: Model) -> Definition:
        """Put a trained model into its pipeline."""
        return Definition.compose(
            model,
            split_pattern=self.split_pattern,
            digits=self.digits,
            normalizer=self.normalizer,
            decoder=find_family(self.family).decoder,
            unicode=compile_pattern(self.split_pattern, self.digits).unicode,
        )
