"""Ends a command after Ctrl-C, SIGTERM, or the loss of its terminal, and states which work is kept."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tokmill.flows.process import end_soon, last_words

_NAMES = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "the terminal was closed (SIGHUP)",
}


class Interruption:
    """The signals that a command received, in order, and what describes the work that is kept."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.kept: Callable[[], str] = lambda: "what was published stays"
        self._unreported = threading.Lock()

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.signals.append(number)
        end_soon(number)
        raise KeyboardInterrupt

    def report(self, number: int) -> None:
        """Print, once, what ended the command, which work is kept, and how to continue."""
        if self._unreported.acquire(blocking=False):
            name = _NAMES[signal.Signals(number)]
            sys.stderr.write(f"tokmill: {name}; {self.kept()}, and the same command continues from there\n")
            sys.stderr.flush()

    def exit_code(self) -> int:
        """Print the message, and return the exit code: 128 plus the signal's number."""
        number = self.signals[0] if self.signals else signal.SIGINT
        self.report(number)
        return 128 + number


_current = Interruption()


def keeping(words: Callable[[], str]) -> None:
    """Set the function that describes the kept work if this command is interrupted."""
    _current.kept = words


class InterruptedCommandError(Exception):
    """A signal ended the command. Not a KeyboardInterrupt, which Typer would handle itself."""

    def __init__(self, interruption: Interruption) -> None:
        super().__init__("interrupted")
        self.interruption = interruption


@contextmanager
def noting_signals() -> Iterator[Interruption]:
    """Record the signals that arrive in this block, even if the KeyboardInterrupt is caught.

    A signal that is ignored (as SIGHUP is under nohup) stays ignored.
    """
    global _current  # noqa: PLW0603 - signals are the process's
    noted = _current = Interruption()
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield noted
        return
    last_words(noted.report)
    before = {number: signal.getsignal(number) for number in _NAMES}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, noted.note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
