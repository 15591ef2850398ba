"""A normalizer made of steps, as in a `tokenizer.json` of a model that SentencePiece made.

Each step takes the text that the one before it made. What a `Metaspace` pre-tokenizer does to the text is the
last step; where text is cut is the pre-tokenizer's. A text between two special tokens is a text of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.character_maps import Buffers
from tokmill.tokenizer.components.steps import Plain, Step, step_from_spec
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import FormatError

MAX_STEPS = 32


@dataclass(frozen=True)
class StepNormalizer:
    """A normalizer that runs steps one after another; see `pipeline.model.TextNormalizer`.

    Attributes:
        steps: the steps, in order.

    Raises:
        FormatError: there is none, or more than `MAX_STEPS`.
    """

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.steps) <= MAX_STEPS:
            raise FormatError(f"normalizer: {len(self.steps)} steps; there must be 1 to {MAX_STEPS}")

    @property
    def name(self) -> str:
        """Its name, for people: the names or kinds of its steps."""
        return "+".join(step.name if isinstance(step, Plain) else step.spec()["kind"] for step in self.steps)

    def spec(self) -> dict[str, Any]:
        """Return the normalizer as JSON-able data."""
        return {"steps": [step.spec() for step in self.steps]}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Build it from the result of `spec`.

        Raises:
            TokenizerError, KeyError, TypeError, ValueError: it is not of this form.
        """
        return cls(tuple(step_from_spec(step) for step in spec["steps"]))

    def text(self, text: str, *, first: bool = True) -> str:
        """Normalize one text."""
        data, offsets = pack_bytes([text.encode("utf-8", "surrogateescape")])
        normalized, _ = self.buffers(data, offsets, first=np.array([first]))
        return normalized.tobytes().decode("utf-8", "surrogateescape")

    def buffers(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        keep: NDArray[np.bool_] | None = None,
        first: NDArray[np.bool_] | None = None,
    ) -> Buffers:
        """Normalize each document of a buffer separately; bytes that are not UTF-8 stay as they are."""
        number = offsets.shape[0] - 1
        keep = np.zeros(number, np.bool_) if keep is None else keep
        first = np.ones(number, np.bool_) if first is None else first
        for step in self.steps:
            data, offsets = step.buffers(data, offsets, keep, first)
        return data, offsets

    def final_boundary(self, data: bytes) -> int:
        """Return the last place at which a text can be cut: 0, since most steps look at the whole text."""
        return 0
