"""The tasks package's errors.

    TaskError
    ├── IdentityError       a value without a canonical form
    ├── SourceError         a source that matches nothing, repeats a file, or cannot be read
    ├── DocumentError       a document that breaks its source's rules while `on_error = "fail"`
    ├── BalanceError        weights, temperatures or caps that cannot be met
    ├── MixingError         weights or repetition limits that the encoded tokens cannot meet
    ├── PackingError        lengths that do not fit the sequence length
    ├── LoadingError        a world, a place or a batch that a packed artifact does not have
    ├── TracingError        a sequence or a document that a packed artifact does not have
    ├── MachineError        memory, a disk or a device that gave out, which says nothing about the data
    ├── AccountError        what came in is not what became of it
    ├── StoreError          an artifact that cannot be published, found or trusted
    └── GateError           an audit whose verdict is "failed" where the profile forbids it

A message says where, the value, the rule and the fix.
"""


class TaskError(Exception):
    """Base of everything that a stage or the store raises on purpose."""


class IdentityError(TaskError):
    """A value that has no canonical form and so cannot bear identity."""


class SourceError(TaskError):
    """A source that matches nothing, repeats a file, or cannot be read."""


class DocumentError(TaskError):
    """A document that breaks its source's rules while `on_error = "fail"`."""


class BalanceError(TaskError):
    """Weights, temperatures or caps that cannot be met."""


class MixingError(TaskError):
    """Weights or repetition limits that the encoded tokens cannot meet."""


class PackingError(TaskError):
    """Document lengths that do not fit the sequence length."""


class LoadingError(TaskError):
    """A world, a place or a batch that a packed artifact does not have."""


class TracingError(TaskError):
    """A sequence or a document that a packed artifact does not have."""


class MachineError(TaskError):
    """Memory, a disk or a device gave out, which says nothing about the data."""


class AccountError(TaskError):
    """What came in is not what became of it."""


class StoreError(TaskError):
    """An artifact that cannot be published, found or trusted."""


class GateError(TaskError):
    """An audit whose verdict is "failed" where the profile forbids going on."""
