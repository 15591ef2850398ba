"""The tasks package's errors.

    TaskError
    ├── FingerprintError    a value without a canonical form
    ├── SourceError         a source that matches nothing, repeats a file, or cannot be read
    ├── DocumentError       a document that breaks its source's rules while `on_error = "fail"`
    ├── HoldoutError        a holdout that leaves nothing on one side
    ├── BalanceError        weights, temperatures or caps that cannot be met
    ├── MixingError         weights or repetition limits that the encoded tokens cannot meet
    ├── PackingError        lengths that do not fit the sequence length
    ├── EmbeddingError      a model's file that is not sound, or does not fit an embedding plan
    ├── LoadingError        an invalid `world_size`, `rank`, `batch_size` or loader state
    ├── TracingError        a sequence or a document that a packed artifact does not have
    ├── MachineError        memory, a disk or a device failed; the data may be intact
    ├── RemoteError         a URL that cannot be used: a password in it, or a library that is missing
    ├── TimeLimitError      a task took longer than it may
    ├── AccountError        the account of a source does not add up
    ├── StoreError          an artifact that cannot be published, found or trusted
    └── GateError           a failed audit, if the profile stops the run for it

A message names the place, the value, the rule and the fix.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tokmill.tokenizer.core.errors import WordedError


class TaskError(WordedError):
    """Base of everything that a stage or the store raises on purpose."""


class FingerprintError(TaskError):
    """A value that has no canonical form, and so cannot be part of a fingerprint."""


class SourceError(TaskError):
    """A source that matches nothing, repeats a file, or cannot be read."""


class DocumentError(TaskError):
    """A document that breaks its source's rules while `on_error = "fail"`."""


class HoldoutError(TaskError):
    """A holdout that leaves nothing for training or nothing for validation."""


class BalanceError(TaskError):
    """Weights, temperatures or caps that cannot be met."""


class MixingError(TaskError):
    """Weights or repetition limits that the encoded tokens cannot meet."""


class PackingError(TaskError):
    """Document lengths that do not fit the sequence length."""


class EmbeddingError(TaskError):
    """A model's file that is not sound, or embeddings that do not fit an embedding plan."""


class LoadingError(TaskError):
    """An invalid `world_size`, `rank`, `batch_size` or loader state."""


class TracingError(TaskError):
    """A sequence or a document that a packed artifact does not have."""


class MachineError(TaskError):
    """Memory, a disk or a device failed; the data may be intact."""


class RemoteError(TaskError):
    """A URL that cannot be used: it holds a password, or the library for its service is not installed."""


class TimeLimitError(TaskError):
    """A task took longer than `execution.timeout` or `execution.timeouts` allows."""


class AccountError(TaskError):
    """The account of a source does not add up: input and additions differ from the sum of the ends."""


class StoreError(TaskError):
    """An artifact that cannot be published, found or trusted."""


class AuditError(TaskError):
    """An audit that cannot be made: a limit for what does not exist, or texts that are not parallel."""


class GateError(TaskError):
    """A failed audit, if the profile stops the run for it.

    Attributes:
        verdict: of the gate.
        limits: what was compared, as rows of `vocab_gates`.
    """

    def __init__(self, message: str, verdict: str = "", limits: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.limits = limits
