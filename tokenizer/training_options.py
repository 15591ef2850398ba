"""The options of a training, except the size of the vocabulary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypedDict

from tokmill.tokenizer.components.normalizers import steps_of
from tokmill.tokenizer.components.post_processors import check_template
from tokmill.tokenizer.components.roles import DEFAULT_TEMPLATE, SPECIAL_SETS, roles_of_sets, with_sets
from tokmill.tokenizer.components.specials import check_names
from tokmill.tokenizer.counting import Cuts
from tokmill.tokenizer.formats.sentencepiece import sentence_definition
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import DEFAULT_FAMILY, FAMILIES, check_mode, find_family
from tokmill.tokenizer.pipeline.model import Model, TextNormalizer
from tokmill.tokenizer.pipeline.options import (
    EndOfWord,
    Letters,
    Mode,
    ModelOptions,
    Score,
    Seed,
    Segmentation,
    TieBreak,
    Unknown,
    check_choice,
)
from tokmill.tokenizer.pipeline.renaming import padded
from tokmill.tokenizer.sentences.options import ROLES, SentenceSplitter, SentenceText, text_normalizer
from tokmill.tokenizer.splitting import Digits, PatternLike, compile_pattern, resolve


class TrainingOptions(TypedDict, total=False):
    """The keywords of a training; `TrainingPlan` describes them and has their defaults."""

    family: str
    split_pattern: PatternLike
    digits: Digits
    normalizer: str | None
    special_tokens: Sequence[str]
    special_sets: Sequence[str]
    roles: Mapping[str, str]
    chat_template: str | None
    template: str | None
    pair_template: str | None
    pad_to_multiple_of: int
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
    allow_smaller: bool
    byte_fallback: bool
    mode: Mode
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    normalization_rules: Mapping[str, str]
    split_by_unicode_script: bool
    split_by_number: bool
    split_digits: bool
    split_by_whitespace: bool
    allow_whitespace_only_pieces: bool
    treat_whitespace_as_suffix: bool
    user_defined_symbols: Sequence[str]
    unk_id: int
    bos_id: int
    eos_id: int
    pad_id: int
    letters: Letters
    end_of_word: EndOfWord
    segmentation: Segmentation


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(ModelOptions):
    """Checked options: those of the model, and of cutting the text.

    Attributes:
        family: one of `pipeline.families.FAMILIES`.
        split_pattern: how text is cut into pre-tokens.
        digits: how digits are cut.
        normalizer: applied to text first; with the mode `sentencepiece` the name of its rules.
        add_dummy_prefix: see `sentences.options.SentenceText`, for the mode `sentencepiece`.
        remove_extra_whitespaces: the same.
        normalization_rules: the same; a text for each string. `components.charsmap.read_rules` reads files.
        special_sets: names of `components.roles.SPECIAL_SETS`, whose tokens are added to `special_tokens`.
        roles: special tokens by role, where the role does not follow from the name.
        chat_template: the text of a Jinja template, which is carried and never executed.
        template: special tokens around one text, as `components.post_processors` spells them.
        pair_template: around two; by default it follows from that for one.
        pad_to_multiple_of: reserved tokens are added until the number of ids is a multiple of this.

    Raises:
        TrainingError: an option is invalid.
        TokenizerError: a pattern, a normalizer or a name of a special token is invalid.
    """

    family: str = DEFAULT_FAMILY
    split_pattern: PatternLike = "o200k"
    digits: Digits = "pattern"
    normalizer: str | None = None
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    normalization_rules: Mapping[str, str] = field(default_factory=dict)
    special_sets: Sequence[str] = ()
    roles: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None
    template: str | None = None
    pair_template: str | None = None
    pad_to_multiple_of: int = 1

    def __post_init__(self) -> None:
        check_choice("family", self.family, list(FAMILIES))
        for name in self.special_sets:
            check_choice("special_sets", name, list(SPECIAL_SETS))
        names = with_sets(check_names(self.special_tokens, "special_tokens"), self.special_sets)
        object.__setattr__(self, "special_tokens", names)
        super().__post_init__()
        check_template(self.template, self.pair_template)
        if self.on_sentences:
            check_mode(self.mode, self.family)
            self.sentences()
            return
        resolve(self.split_pattern, self.digits)
        steps_of(self.normalizer)

    def sentences(self) -> SentenceText:
        """Return how text is read for training on whole sentences."""
        given = {option.name: getattr(self, option.name) for option in fields(SentenceText)}
        given["user_defined_symbols"] = tuple(self.user_defined_symbols)
        given["normalization_rules"] = tuple(sorted(self.normalization_rules.items()))
        return SentenceText(**given)

    def reading(self) -> tuple[Cuts, str | TextNormalizer | None]:
        """Return what cuts text into pre-tokens, and the normalizer before it."""
        if self.on_sentences:
            text = self.sentences()
            return SentenceSplitter(text), text_normalizer(text)
        return compile_pattern(self.split_pattern, self.digits), self.normalizer

    def definition(self, model: Model) -> Definition:
        """Put a trained model into its pipeline, with roles and templates, and pad its vocabulary."""
        roles = {**roles_of_sets(self.special_sets), **self.roles}
        made = self._composed(model).with_template(self.template, self.pair_template)
        made = padded(made, self.pad_to_multiple_of).with_roles(roles)
        template = {} if self.chat_template is None else {DEFAULT_TEMPLATE: self.chat_template}
        return made.with_chat_templates(template)

    def _composed(self, model: Model) -> Definition:
        if self.on_sentences:
            roles = {role: name for role, name in ROLES.items() if name in model.vocabulary.special_tokens}
            return sentence_definition(model, text_normalizer(self.sentences()), roles)
        return Definition.compose(
            model,
            split_pattern=self.split_pattern,
            digits=self.digits,
            normalizer=self.normalizer,
            decoder=find_family(self.family).decoder,
            unicode=compile_pattern(self.split_pattern, self.digits).unicode,
        )
