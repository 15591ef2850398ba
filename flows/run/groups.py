"""Groups of shards that are one task run of Prefect.

A task run costs milliseconds here and tens of milliseconds at the server, whatever it does, and a page of a
thousand rows is of no use to anybody. So the steps of a mapped job are divided into groups of neighbours, as
many as keep all workers busy to the end. A group is `Cached` if the store has the artifacts of all its steps;
else it makes those that are missing. Fingerprints, artifacts and their records are those of single steps, and
so is everything that a run reports: only Prefect counts groups.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tokmill.tasks.core.stage import ArtifactRef

T = TypeVar("T")

_FEW = 16
_GROUPS_PER_WORKER = 4


class GroupError(Exception):
    """A step of a group failed; those before it are done, and those after it were not begun.

    Attributes:
        title: of the step.
        refs: the artifacts of the steps before it.
        error: why it failed.
    """

    def __init__(self, title: str, refs: Sequence[ArtifactRef], error: Exception) -> None:
        super().__init__(title, refs, error)  # so that it can be pickled
        self.title = title
        self.refs = refs
        self.error = error

    def __str__(self) -> str:
        """Return what Prefect shows: which step failed, and why."""
        return f"{self.title}: {self.error}"


def divided(items: Sequence[T], workers: int) -> Iterator[Sequence[T]]:
    """Yield items in groups of neighbours, each by itself if there are few.

    There are at least four groups per worker, so that at the end of a job a worker is idle for a quarter of
    its time at most.

    Args:
        items: in order.
        workers: how many groups are worked on at a time.
    """
    most = max(_FEW, _GROUPS_PER_WORKER * workers)
    size = -(-len(items) // most) or 1
    for first in range(0, len(items), size):
        yield items[first : first + size]


def group_title(titles: Sequence[str]) -> str:
    """Return the title of a group: `encode[english/0-31]`; across sources `encode[english/90 … code/3]`."""
    first, last = titles[0], titles[-1]
    if len(titles) == 1:
        return first
    stage, _, start = first.rstrip("]").partition("[")
    stop = last.rstrip("]").partition("[")[2]
    other, _, until = stop.rpartition("/")
    alike = start.rpartition("/")[0] == other
    return f"{stage}[{start}-{until}]" if alike else f"{stage}[{start} … {stop}]"
