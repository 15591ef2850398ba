"""What a command does when it is told to end: by Ctrl-C, by SIGTERM, or because its terminal was closed.

The signal becomes a KeyboardInterrupt in the main thread; `flows.run.deadline` sees to it that the process
ends soon. What is said then, once, is what became of the work.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from tokmill.flows.run.deadline import end_soon, last_words

_NAMES = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "the terminal was closed (SIGHUP)",
}


class Interruption:
    """The signals that a command was sent, and what is said about them.

    Attributes:
        signals: in the order in which they came.
        kept: says what the command has done so far that stays.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.kept: Callable[[], str] = lambda: "what was published stays"
        self._unsaid = threading.Lock()

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take in a signal."""
        self.signals.append(number)
        end_soon(number)
        raise KeyboardInterrupt

    def say(self, number: int) -> None:
        """Say what ended the command, what stays, and how to go on; once."""
        if self._unsaid.acquire(blocking=False):
            name = _NAMES[signal.Signals(number)]
            sys.stderr.write(f"tokmill: {name}; {self.kept()}, and the same command goes on from there\n")
            sys.stderr.flush()

    def answer(self) -> int:
        """Say it, and return the exit code: 128 and the signal's number."""
        number = self.signals[0] if self.signals else signal.SIGINT
        self.say(number)
        return 128 + number


_current = Interruption()


def keeping(words: Callable[[], str]) -> None:
    """Have an interrupted command say in `words` what it has done so far that stays."""
    _current.kept = words


class InterruptedCommandError(Exception):
    """A command that was told to end, carried past Typer, which would answer it in its own way."""

    def __init__(self, interruption: Interruption) -> None:
        super().__init__("interrupted")
        self.interruption = interruption


@contextmanager
def noting_signals() -> Iterator[Interruption]:
    """Give what tells of the signals that come in this block, whatever becomes of the KeyboardInterrupt.

    A signal that is ignored (as SIGHUP is under nohup) stays so.
    """
    global _current  # noqa: PLW0603 - signals are the process's
    noted = _current = Interruption()
    if threading.current_thread() is not threading.main_thread():  # which alone is told of signals
        yield noted
        return
    last_words(noted.say)
    before = {number: signal.getsignal(number) for number in _NAMES}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, noted.note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
