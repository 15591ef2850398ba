"""Links of the texts in Prefect's pages: to flow runs, to other artifacts of a run, and to reports.

Paths begin at the server's root, so that they work under every name of it, from both of Prefect's user
interfaces; they open the newer one. A run is linked only if this server knows it: an artifact may have been
made on another server, or without any.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tokmill.tasks.core.stage import ArtifactRef

_RUN, _TASK_RUN, _KEY = "/v2/runs/flow-run", "/v2/runs/task-run", "/v2/artifacts/key"
_REPORTED = {"audit", "sweep"}


def key_of(what: str, name: str) -> str:
    """Return a key that Prefect accepts (lower-case letters, digits, dashes): `audit-my-profile`."""
    return re.sub("[^a-z0-9]+", "-", f"{what}-{name}".lower()).strip("-")


def to_key(text: str, key: str) -> str:
    """Return a link to the newest artifact of a key."""
    return f"[{text}]({_KEY}/{key})"


def to_task_run(text: str, task_run: UUID) -> str:
    """Return a link to the page of a task run."""
    return f"[{text}]({_TASK_RUN}/{task_run})"


@dataclass
class Links:
    """What can be linked.

    Attributes:
        store: the store, as a folder or URL.
        reports: URL below which reports are served; None if this server has none.
        runs: id → name of the flow runs that this server knows.
        asked: ids of flow runs that it was asked for.
    """

    store: str
    reports: str | None = None
    runs: dict[str, str] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)

    def unknown(self, ids: Iterable[str | None]) -> set[str]:
        """Return the ids of flow runs that the server was not asked for yet."""
        return {run_id for run_id in ids if run_id is not None} - self.asked

    def learn(self, asked: Iterable[str], names: Mapping[str, str]) -> None:
        """Note which flow runs the server knows of those that it was asked for, and their names."""
        self.asked |= set(asked)
        self.runs |= names

    def run(self, run_id: str | None) -> str:
        """Return a link to a flow run, by its name; nothing if this server does not know it."""
        return f"[{_plain(self.runs[run_id])}]({_RUN}/{run_id})" if run_id in self.runs else ""

    def report(self, ref: ArtifactRef) -> str:
        """Return a link to the report of an artifact; nothing if it has none, or no server makes it."""
        if self.reports is None or ref.kind not in _REPORTED:
            return ""
        return f"[Report]({self.reports}/{ref.fingerprint})"

    def command(self, reference: str) -> str:
        """Return the command that shows an artifact in a terminal, in whatever folder."""
        return f"tokmill show {reference} --store {shlex.quote(self.store)}"


def _plain(text: str) -> str:
    """Return a text that ends no link and no cell of a table."""
    return text.replace("[", "(").replace("]", ")").replace("|", "/")
