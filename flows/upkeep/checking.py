"""Checks a whole store, and reports it for people, pages and scripts."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tokmill.flows.figures import counted, size, span
from tokmill.tasks.core.markdown import table
from tokmill.tasks.store import Problem, Store

_MOST_SHOWN = 200


@dataclass(frozen=True)
class Checked:
    """The result of a check.

    Attributes:
        location: of the store.
        deep: whether every byte was read, and not only sizes compared.
        problems: what is wrong, in no particular order.
        num_artifacts, num_bytes: how much was checked.
        seconds: wall time.
    """

    location: str
    deep: bool
    problems: Sequence[Problem]
    num_artifacts: int
    num_bytes: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def summary(self) -> str:
        """The result in one line."""
        found = counted(len(self.problems), "problem") if self.problems else "no problems"
        how = "every byte read" if self.deep else "sizes compared"
        amount = f"{counted(self.num_artifacts, 'artifact')} of {size(self.num_bytes)}"
        return f"{self.location}: {amount} checked in {span(self.seconds)} ({how}), {found}"

    def to_json(self) -> dict[str, object]:
        """Return the result as plain data."""
        problems = [{"artifact": p.artifact, "path": p.path, "message": p.message} for p in self.problems]
        counts = {"num_artifacts": self.num_artifacts, "num_bytes": self.num_bytes, "seconds": self.seconds}
        return {"store": self.location, "deep": self.deep, **counts, "problems": problems}

    def to_markdown(self) -> str:
        """Return the result for a page: the summary, and a table of the problems."""
        parts = ["# Check of the store", self.summary]
        if self.problems:
            rows = [(p.artifact, p.path, p.message) for p in self.problems[:_MOST_SHOWN]]
            parts.append("\n".join(table(("artifact", "file", "problem"), rows, left=range(3))))
            parts.append(
                "To repair a damaged artifact, run its profile again: it is set aside, and made anew."
            )
        if len(self.problems) > _MOST_SHOWN:
            parts.append(
                f"{len(self.problems) - _MOST_SHOWN:,} more are not listed; `tokmill verify` has all."
            )
        return "\n\n".join(parts) + "\n"


def check_store(store: Store, *, deep: bool = True) -> Checked:
    """Check every artifact, label, alias and run, and the catalog; nothing is changed.

    Args:
        store: the store.
        deep: read every byte and compare digests; otherwise compare the files' sizes only.
    """
    began = time.monotonic()
    problems = store.verify(full=deep)
    amount = "SELECT count(*) AS number, coalesce(sum(num_bytes), 0)::BIGINT AS bytes FROM artifacts"
    (row,) = store.catalog.query(amount)
    return Checked(
        store.location, deep, problems, row["number"], row["bytes"], round(time.monotonic() - began, 3)
    )
