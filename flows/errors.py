"""The flows package's errors.

    FlowError
    ├── ProfileError        a profile is missing, unreadable or invalid
    ├── UsageError          a command has wrong or contradictory arguments, or names what does not exist
    ├── RunError            a stage of a run failed
    └── ServeError          a server, a worker or a deployment did not start

A message has the place, the value, the rule and the fix. The command line exits with code 2 ("wrong usage")
after the first two, and with 1 ("failed") after all others.
"""

from tokmill.tokenizer.core.errors import WordedError


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
