"""The flows package's errors, and "did you mean" for their messages.

    FlowError
    ├── ProfileError        a profile is missing, unreadable or invalid
    ├── UsageError          a command has wrong or contradictory arguments, or names what does not exist
    ├── RunError            a stage of a run failed
    └── ServeError          a server, a worker or a deployment did not start

A message has the place, the value, the rule and the fix. The command line exits with code 2 ("wrong usage")
after the first two, and with 1 ("failed") after all others.
"""

from collections.abc import Iterable

from tokmill.tokenizer.core.errors import WordedError

_SHOWN = 12


class FlowError(WordedError):
    """Base of all errors of the flows package."""


class ProfileError(FlowError):
    """A profile is missing, unreadable or invalid; the message has one line per problem."""


class UsageError(FlowError):
    """A command has wrong or contradictory arguments, or names something that does not exist."""


class RunError(FlowError):
    """A stage of a run failed; artifacts that were published before stay published.

    Attributes:
        task: the title of the task that failed, e.g. `encode[english/3]`; None if it was none.
    """

    def __init__(self, message: str, task: str | None = None) -> None:
        super().__init__(message)
        self.task = task

    def says_all(self) -> bool:
        """Whether the task failed for a reason that its message has, and not by a fault of ours."""
        return self.__cause__ is None or isinstance(self.__cause__, WordedError)


class ServeError(FlowError):
    """A Prefect server, a worker or a deployment did not start."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, or None if nothing is close; ties go to the first in order."""
    import difflib  # noqa: PLC0415 - only after a mistake

    found = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.55)
    return found[0] if found else None


def suggestion(name: str, known: Iterable[str], *, known_as: str) -> str:
    """Return `; did you mean X?`, or the known names after a heading, or nothing if there are none."""
    names = sorted(known)
    close = nearest(name, names)
    if close is not None:
        return f"; did you mean {close}?"
    if not names:
        return ""
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return f"; {known_as}: {', '.join(names[:_SHOWN])}{more}"
