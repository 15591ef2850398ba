"""Watches the server's own loops from within: what schedules runs, marks late ones, stores events and logs.

A server whose loop has died, or fails every time, answers every request and shows every page; only its log
knows. Two things are noticed here. A task that the start of the server left running has ended: Prefect itself
does not look at these until it stops. And what is logged as an error. Both go, a line each, to a file that
`tokmill up` reads aloud, beside the log itself.
"""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tokmill.flows.server.guard import Application, Message, Receive, Scope, Send

# SQLite's, when two wrote at a time; Prefect tries again by itself. Where that does not help, runs come late,
# which is noticed from outside (`flows.server.doctor`).
_PASSING = "database is locked"
_LOGGER = logging.getLogger("prefect.server.tokmill")  # below one that Prefect's configuration knows


class Loops:
    """An ASGI application whose background tasks are looked at when they end."""

    def __init__(self, application: Application) -> None:
        """Watch what an application starts."""
        self._application = application
        self._stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass requests on; watch from the end of the start to the beginning of the stop."""
        if scope["type"] != "lifespan":
            await self._application(scope, receive, send)
            return

        async def receiving() -> Message:
            message = await receive()
            self._stopping = message["type"] == "lifespan.shutdown"
            return message

        async def sending(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._watch()
            await send(message)

        await self._application(scope, receiving, sending)

    def _watch(self) -> None:
        """Look at every task there is; those of the start have not had a turn yet, so that none is missed."""
        for task in asyncio.all_tasks():
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[object]") -> None:
        if self._stopping or task.cancelled():
            return
        error = task.exception()
        if error is not None:
            what = getattr(task.get_coro(), "__qualname__", task.get_name())
            _LOGGER.error("%s of the server has ended", what, exc_info=error)


class _Faults(logging.Handler):
    """Appends one line for each kind of error: the same one, once a minute, is told once."""

    def __init__(self, file: Path) -> None:
        super().__init__(logging.ERROR)
        self._file = file
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless there is one like it."""
        what = fault_of(record)
        if _PASSING in what:
            return
        kind = "".join(letter for letter in what if letter.isalpha())
        if kind in self._told:
            return
        self._told.add(kind)
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")
        try:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(f"{moment} {what}\n")
        except OSError:
            self.handleError(record)


def fault_of(record: logging.LogRecord, most: int = 300) -> str:
    """Return an error in one line: what was logged, and the exception with its reason."""
    said = [record.getMessage().strip()]
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        said.append(f"{type(error).__name__}: {error}")
    lines = [next(iter(text.splitlines()), "") for text in said]
    return ": ".join(line for line in lines if line)[:most]


def write_faults(file: Path) -> None:
    """Have what goes wrong in this process written to a file, which is emptied before."""
    file.write_text("", encoding="utf-8")
    faults = _Faults(file)
    for logger in _outermost():
        logger.addHandler(faults)


def _outermost() -> Iterator[logging.Logger]:
    """Yield the loggers that pass nothing on: between them they hear everything once."""
    yield logging.getLogger()
    for logger in list(logging.getLogger().manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and not logger.propagate:
            yield logger
