"""Limits on how often each source may and must be drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Self

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.sampling import EXACT, check_sources, decimal


@dataclass(frozen=True)
class Limits:
    """The limits of all sources, by name.

    Attributes:
        sizes: tokens of each source.
        repetitions: the most times that each may be drawn.
        epochs: the fewest times that each must be drawn.
        caps: `repetitions` in tokens, rounded down.
        floors: `epochs` in tokens, rounded up.
    """

    sizes: Mapping[str, int]
    repetitions: Mapping[str, float]
    epochs: Mapping[str, float]
    caps: Mapping[str, Decimal]
    floors: Mapping[str, Decimal]

    @classmethod
    def of(cls, params: MixParams, sizes: Mapping[str, int], weighted: Mapping[str, bool]) -> Self:
        """The limits that the parameters set on sources of `sizes` tokens; `weighted` marks the drawn ones.

        Raises:
            MixingError: a limit is for an unknown source, a floor exceeds its cap, or a source with a floor
                has no weight.
        """
        repetitions = _by_source(params.max_repetition, sizes, 1.0, "max_repetition")
        epochs = _by_source(params.min_epochs, sizes, 0.0, "min_epochs")
        if not isinstance(params.min_epochs, Mapping):
            epochs = {source: least if weighted[source] else 0.0 for source, least in epochs.items()}
        for source, least in epochs.items():
            if least > repetitions[source]:
                raise MixingError(
                    f"mix: min_epochs={least:g} of '{source}' must be at most its max_repetition="
                    f"{repetitions[source]:g}; lower the former or raise the latter"
                )
            if least and not weighted[source]:
                raise MixingError(
                    f"mix: min_epochs={least:g} of '{source}', but its weight is 0; give it a weight, or "
                    "remove it from min_epochs"
                )
        with localcontext(EXACT):
            caps = {source: _times(repetitions[source], size, ROUND_FLOOR) for source, size in sizes.items()}
            floors = {source: _times(epochs[source], size, ROUND_CEILING) for source, size in sizes.items()}
        return cls(sizes, repetitions, epochs, caps, floors)


def _by_source(
    limit: float | Mapping[str, float], sizes: Mapping[str, int], default: float, what: str
) -> dict[str, float]:
    if not isinstance(limit, Mapping):
        return dict.fromkeys(sizes, limit)
    check_sources(what, limit, sizes, MixingError, "mix")
    return dict.fromkeys(sizes, default) | dict(limit)


def _times(factor: float, size: int, rounding: str) -> Decimal:
    return (decimal(factor) * size).to_integral_value(rounding)
