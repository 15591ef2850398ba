"""Monitors the server's background loops, which schedule runs, mark late ones, and store events and logs.

A server still answers every request after one of its loops has ended or fails every time. Two things are
detected: the end of a background task, which Prefect does not check before it stops, and messages logged as
errors. Both are written, one line each, to a file that `tokmill up` reads and prints.
"""

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from tokmill.flows.server.guard import Application, Message, Receive, Scope, Send

# From concurrent writes to SQLite. Prefect retries; if that does not help, runs are late, which
# `flows.server.doctor` detects.
_TRANSIENT = "database is locked"
_LOGGER = logging.getLogger("prefect.server.tokmill")  # below a logger that Prefect configures


class Loops:
    """An ASGI application that logs an error when one of its background tasks ends."""

    def __init__(self, application: Application) -> None:
        """Monitor an application."""
        self._application = application
        self._stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass requests on; monitor tasks between startup and shutdown."""
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
        """Add a callback to all current tasks; those from startup have not run yet, so none is missed."""
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
    """Appends one line for each kind of error; an error that repeats is written once."""

    def __init__(self, file: Path) -> None:
        super().__init__(logging.ERROR)
        self._file = file
        self._known: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Write an error, unless one like it was written before."""
        what = fault_of(record)
        if _TRANSIENT in what:
            return
        kind = "".join(letter for letter in what if letter.isalpha())
        if kind in self._known:
            return
        self._known.add(kind)
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")
        try:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(f"{moment} {what}\n")
        except OSError:
            self.handleError(record)


def fault_of(record: logging.LogRecord, most: int = 300) -> str:
    """Return an error in one line: the log message and the exception."""
    texts = [record.getMessage().strip()]
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        texts.append(f"{type(error).__name__}: {error}")
    lines = [next(iter(text.splitlines()), "") for text in texts]
    return ": ".join(line for line in lines if line)[:most]


def write_faults(file: Path) -> None:
    """Write errors of this process to a file from now on; the file is emptied first."""
    file.write_text("", encoding="utf-8")
    faults = _Faults(file)
    for logger in _outermost():
        logger.addHandler(faults)


def _outermost() -> Iterator[logging.Logger]:
    """Yield the loggers that do not propagate; together they receive every message once."""
    yield logging.getLogger()
    for logger in list(logging.getLogger().manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and not logger.propagate:
            yield logger
