"""What the executor knows of a job that it has started."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokmill.flows.run.dag import Step
from tokmill.flows.run.results import RunRow

_SOURCE = re.compile(r"\[(.+)/\d+\]$")  # a task over shards: `encode[english/3]`


@dataclass
class Started:
    """A started job: its rows and its failures by index of the step; -1 is the job itself."""

    steps: Sequence[Step] = ()
    rows: dict[int, RunRow] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every step has its artifact."""
        return len(self.rows) == len(self.steps)

    @property
    def in_order(self) -> list[RunRow]:
        """The rows in the order of the steps."""
        return [self.rows[index] for index in sorted(self.rows)]


def titled(step: Step, message: str) -> str:
    """Put the task's title before a message, in place of the message's own stage and source."""
    rest = message.removeprefix(f"{step.stage.task}: ")
    source = _SOURCE.search(step.title)
    if source is not None:
        rest = rest.removeprefix(f"source '{source[1]}': ")
    return f"{step.title}: {rest}"
