"""What a training may be told besides how large the vocabulary is to be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from tokmill.tokenizer.byte_bpe.kernels.pairs import MAX_IDS
from tokmill.tokenizer.byte_bpe.trainer import MergeRules
from tokmill.tokenizer.components.definition import FAMILY, Definition
from tokmill.tokenizer.components.normalizers import steps_of
from tokmill.tokenizer.components.specials import check_names, reserved_name
from tokmill.tokenizer.core.alphabet import BYTE_ORDER
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.splitting import Digits, PatternLike, compile_pattern, resolve
from tokmill.tokenizer.tokenizer import Tokenizer

TieBreak = Literal["lexicographic_max", "lowest_ids"]


class TrainingOptions(TypedDict, total=False):
    """The keywords of a training; `TrainingPlan` says what they mean and what they are by default."""

    family: str
    split_pattern: PatternLike
    digits: Digits
    normalizer: str | None
    special_tokens: Sequence[str]
    num_reserved: int
    min_frequency: int
    max_token_bytes: int | None
    tie_break: TieBreak


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Options that make sense together, and what follows from them.

    Attributes:
        family: `byte_bpe`.
        split_pattern: how text is cut into pre-tokens.
        digits: how digits are cut.
        normalizer: what is done to text first.
        special_tokens: names, which get the ids after the merges, in this order.
        num_reserved: how many tokens `<|reserved_0|>`, ... follow them.
        min_frequency: pairs that occur less often are not merged.
        max_token_bytes: longer tokens are not made.
        tie_break: which of the most frequent pairs comes first.

    Raises:
        TrainingError: a value that makes no sense.
        TokenizerError: a pattern, a normalizer or names that make none.
    """

    family: str = FAMILY
    split_pattern: PatternLike = "gpt2"
    digits: Digits = "pattern"
    normalizer: str | None = None
    special_tokens: Sequence[str] = ()
    num_reserved: int = 0
    min_frequency: int = 1
    max_token_bytes: int | None = None
    tie_break: TieBreak = "lexicographic_max"

    def __post_init__(self) -> None:
        for name, known in (("family", (FAMILY,)), ("tie_break", get_args(TieBreak))):
            if getattr(self, name) not in known:
                raise TrainingError(
                    f"train: {name}={getattr(self, name)!r} is not known; use one of {', '.join(known)}"
                )
        for name, least in (("min_frequency", 0), ("max_token_bytes", 1), ("num_reserved", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise TrainingError(f"train: {name}={value} must be at least {least}")
        if self.num_reserved > MAX_IDS:
            raise TrainingError(f"train: num_reserved={self.num_reserved} must be at most {MAX_IDS}")
        resolve(self.split_pattern, self.digits)
        steps_of(self.normalizer)
        check_names(self.special_tokens, "special_tokens")
        check_names(self.names, "special_tokens and reserved tokens")

    @property
    def names(self) -> list[str]:
        """Special and reserved tokens, in the order of their ids."""
        return [*self.special_tokens, *map(reserved_name, range(self.num_reserved))]

    def rules(self) -> MergeRules:
        """Return what may be merged."""
        forbidden = [name.encode() for name in self.names]
        return MergeRules(self.tie_break, self.min_frequency, self.max_token_bytes, forbidden)

    def num_merges(self, vocab_size: int) -> int:
        """Return the tokens that are left for merges beside 256 bytes and the special and reserved tokens.

        Raises:
            TrainingError: there are too few for those.
        """
        num_merges = vocab_size - 256 - len(self.names)
        if num_merges < 0:
            raise TrainingError(
                f"train: vocab_size={vocab_size} is too small for 256 bytes and {len(self.names)} special "
                f"and reserved tokens; use at least {256 + len(self.names)}"
            )
        return num_merges

    def tokenizer(self, merges: Sequence[tuple[bytes, bytes]]) -> Tokenizer:
        """Return the tokenizer that some merges make."""
        tokens = {i: bytes([byte]) for i, byte in enumerate(BYTE_ORDER)}
        tokens |= {256 + i: left + right for i, (left, right) in enumerate(merges)}
        specials = {name: 256 + len(merges) + i for i, name in enumerate(self.names)}
        return Tokenizer(
            Definition.build(
                tokens,
                merges,
                specials,
                split_pattern=self.split_pattern,
                digits=self.digits,
                normalizer=self.normalizer,
                num_reserved=self.num_reserved,
                unicode=compile_pattern(self.split_pattern, self.digits).unicode,
            )
        )
