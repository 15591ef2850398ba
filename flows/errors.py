"""The flows package's errors.

    FlowError
    ├── ProfileError        a profile that cannot be found, read or understood
    ├── UsageError          a command that asks for something that does not exist or does not fit together
    ├── RunError            a run of which a stage failed
    └── ServeError          a server, a worker or a deployment that did not come up

A message says where, the value, the rule and the fix. The command line answers the first two with exit code 2
("wrong usage") and everything else with 1 ("failed").
"""


class FlowError(Exception):
    """Base of everything that the flows package raises on purpose."""


class ProfileError(FlowError):
    """A profile that cannot be found, read or understood; one line a problem."""


class UsageError(FlowError):
    """A command that asks for something that does not exist, or for things that do not fit together."""


class RunError(FlowError):
    """A run of which a stage failed; what was published before it stays published."""


class ServeError(FlowError):
    """A Prefect server, a worker or a deployment that did not come up."""
