"""Pre-tokenizers: how normalized text is cut into pre-tokens, which a model then encodes one by one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.splitting import Digits, PatternLike, Splitter, compile_pattern, resolve


@dataclass(frozen=True)
class PreTokenizer:
    """A split pattern.

    Attributes:
        split_pattern: a name, an expression, or a chain of expressions.
        digits: how digits are cut.

    Raises:
        PatternError: an unknown name, or an invalid expression.
    """

    split_pattern: PatternLike
    digits: Digits = "pattern"

    def __post_init__(self) -> None:
        resolve(self.split_pattern, self.digits)

    @property
    def chain(self) -> tuple[str, ...]:
        """The expressions that the pattern and the digits stand for."""
        return resolve(self.split_pattern, self.digits)

    def compile(self) -> Splitter:
        """Return the splitter that runs it; the same one for equal patterns."""
        return compile_pattern(self.split_pattern, self.digits)

    def spec(self) -> dict[str, Any]:
        """Return the pre-tokenizer as JSON-able data.

        `split_chain` is what `split_pattern` and `digits` stand for, so that a spec keeps its meaning if a
        later version gives the name to another pattern.
        """
        pattern = self.split_pattern
        return {
            "split_pattern": pattern if isinstance(pattern, str) else list(pattern),
            "digits": self.digits,
            "split_chain": list(self.chain),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Build it from the result of `spec`: by name if the name still stands for the same chain."""
        pattern, digits, chain = spec["split_pattern"], spec["digits"], spec["split_chain"]
        try:
            same = list(resolve(pattern, digits)) == chain
        except PatternError:
            same = False
        if same:
            return cls(pattern if isinstance(pattern, str) else tuple(pattern), digits)
        return cls(tuple(chain))
