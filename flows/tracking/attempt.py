"""One attempt of a run, as other systems are told of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID, uuid5

from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry
from tokmill.tasks.store.runs import Begun

End: TypeAlias = Literal["completed", "failed", "stopped"]
"""How an attempt ended: `stopped` by a person, a signal or a pause, not by an error of its own."""


@dataclass(frozen=True)
class Attempt:
    """A run, from one start to the next end; a retry and what follows a pause are attempts of their own.

    Attributes:
        run_id: the run's key in the catalog.
        number: 1 for the first.
        begun: what is recorded of it: names, parameters, page.
        store: where its artifacts are.
        began: in UTC.
    """

    run_id: str
    number: int
    begun: Begun
    store: Store
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def id(self) -> UUID:
        """The run's id for the first attempt; for a later one, an id that follows from both."""
        run = UUID(self.run_id)
        return run if self.number == 1 else uuid5(run, f"attempt {self.number}")

    def task_id(self, title: str) -> UUID:
        """Return the id of a task of this attempt."""
        return uuid5(self.id, title)


@dataclass(frozen=True)
class Asked:
    """A task before its end.

    Attributes:
        title: e.g. `encode[english/3]`.
        stage: the name shown to users, e.g. `encode`.
        kind, name: of the artifact.
        params: of the stage, as JSON values.
        inputs: what it is made from.
        lists: artifacts that list its inputs: a shard of a corpus is no artifact, the corpus is.
    """

    title: str
    stage: str
    kind: str
    name: str
    params: Mapping[str, Any]
    inputs: Sequence[InputEntry]
    lists: Sequence[ArtifactRef] = ()


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested values as text by dotted names; what is not set is left out."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{name}."))
        elif value is not None and value not in ([], ""):
            found[f"{prefix}{name}"] = value if isinstance(value, str) else _as_text(value)
    return found


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
