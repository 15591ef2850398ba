"""How long a task may take, and how often it is tried: settings of the machine, which change no result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from tokmill.flows.profile import Execution  # imports numpy and all stages

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def num_seconds(duration: str) -> float:
    """Return the seconds of a duration such as `90s`, `30m`, `1.5h` or `2d`."""
    return float(duration[:-1]) * _UNITS[duration[-1]]


@dataclass(frozen=True)
class Limits:
    """The limits of every task of a run.

    Attributes:
        retries: further attempts after a fault that may pass (`tasks.core.faults.may_pass`).
        pause: seconds before the first of them; each further one waits twice as long.
        timeout: how long a stage may run, e.g. `2h`; None for ever.
        timeouts: the same for single stages, by the name in their tasks' titles; `timeout` for all others.
    """

    retries: int = 2
    pause: float = 5.0
    timeout: str | None = None
    timeouts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, execution: "Execution") -> Self:
        """Return the limits of a profile's `[execution]`."""
        timeouts = {str(stage): limit for stage, limit in execution.timeouts.items()}
        return cls(execution.retries, execution.retry_pause, execution.timeout, timeouts)

    def of_stage(self, name: str) -> str | None:
        """Return how long a stage may run."""
        return self.timeouts.get(name, self.timeout)
