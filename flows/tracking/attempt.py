"""One attempt of a run, as other systems are told of it, and how messages get to them.

An outbox sends in a thread of its own, in order, so that a run does not wait for a receiver. After three
messages in a row that were not taken, no further one is tried, and the end of a run does not wait long for a
receiver that is silent. How many were not taken, and why, is told once.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID, uuid5

from tokmill.flows.results import RunRow
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry
from tokmill.tasks.store.rows import flat
from tokmill.tasks.store.runs import Begun

End: TypeAlias = Literal["completed", "failed", "stopped"]
"""How an attempt ended: `stopped` by a person, a signal or a pause, not by an error of its own."""
_GIVE_UP_AFTER: Final = 3


@dataclass(frozen=True)
class Attempt:
    """A run, from one start to the next end; a retry and what follows a pause are attempts of their own."""

    run_id: str  # the run's key in the catalog
    number: int  # 1 for the first
    begun: Begun  # what is recorded of it: names, parameters, page
    store: Store
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def id(self) -> UUID:
        """The run's id for the first attempt; for a later one, an id that follows from both."""
        run = UUID(self.run_id)
        return run if self.number == 1 else uuid5(run, f"attempt {self.number}")


@dataclass(frozen=True)
class Asked:
    """A task before its end."""

    title: str  # e.g. `encode[english/3]`
    stage: str  # the name shown to users, e.g. `encode`
    kind: str
    name: str
    params: Mapping[str, Any]  # of the stage, as JSON values
    inputs: Sequence[InputEntry]
    lists: Sequence[ArtifactRef] = ()
    """Artifacts that list its inputs: a shard of a corpus is no artifact, the corpus is."""


class Follower:
    """A system that is told of an attempt, from any thread; what it does not care for does nothing."""

    def begin(self) -> None:
        """The attempt begins."""

    def asked(self, task: Asked) -> None:
        """A task is about to be submitted."""

    def started(self, title: str) -> None:
        """A task starts."""

    def finished(self, row: RunRow) -> None:
        """A task has its artifact."""

    def failed(self, title: str, message: str) -> None:
        """A task has failed."""

    def end(self, end: End, message: str = "") -> None:
        """The attempt has ended."""


def texts_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return nested values as text by dotted names; what is not set is left out."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in flat(values)
        if value not in (None, "", [], {})
    }


class Outbox:
    """Messages on their way to a receiver; `warn` gets one sentence if some were not taken."""

    def __init__(self, name: str, warn: Callable[[str], None]) -> None:
        self._name, self._warn = name, warn
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._num_put = self._num_taken = 0
        self._problem, self._last_taken = "", -math.inf
        run = copy_context().run
        self._thread = threading.Thread(target=run, args=(self._send_all,), name=name, daemon=True)
        self._thread.start()

    def put(self, send: Callable[[], None]) -> None:
        """Have a message sent after all that were put before; `send` raises if it is not taken."""
        self._num_put += 1
        self._waiting.put(send)

    def close(self, seconds: float, silence: float = math.inf) -> None:
        """Wait until all messages are sent, at most so long, and for a silent receiver only `silence`."""
        self._waiting.put(None)
        began = self._last_taken = time.monotonic()
        while self._thread.is_alive():
            left = min(began + seconds, self._last_taken + silence) - time.monotonic()
            if left <= 0:
                break
            self._thread.join(left)
        if lost := self._num_put - self._num_taken:
            waited = f"it took longer than {time.monotonic() - began:.0f} s"
            why = self._problem or (waited if self._thread.is_alive() else "")
            many = f"{lost} of {self._num_put} messages were" if self._num_put > 1 else "the message was"
            self._warn(f"{self._name}: {many} not taken ({why}); the run is not affected")

    def _send_all(self) -> None:
        refused = 0  # in a row
        while (send := self._waiting.get()) is not None:
            if refused >= _GIVE_UP_AFTER:
                continue
            try:
                send()
            except Exception as error:  # its text may have an address with a password in it
                self._problem = type(error).__name__
                refused += 1
            else:
                self._num_taken += 1
                self._last_taken, refused = time.monotonic(), 0
