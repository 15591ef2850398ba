"""The section `[notify]`: who is told how a run ended.

A webhook's address is often a secret. So a profile names where the address is kept, and never the address: an
environment variable of the process that executes the run, or a secret block of the Prefect server. The
section is no part of any fingerprint, and is left out of a run's record.
"""

import re
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

Event: TypeAlias = Literal["failure", "gate", "completion"]

_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|block:[a-z0-9][a-z0-9-]*")


def check_reference(reference: str | None, what: str, example: str) -> str | None:
    """Return a reference to a secret, if it is one.

    Args:
        reference: as it is written in a profile; None if there is none.
        what: it refers to, e.g. `the URL`.
        example: name of a variable, for the message.

    Raises:
        ValueError: it is no reference. The message does not repeat it, since it may be the secret itself.
    """
    if reference is not None and not _REFERENCE.fullmatch(reference):
        raise ValueError(
            f"it must say where {what} is kept, and not be {what}: env:VARIABLE for an environment variable, "
            f"or block:NAME for a secret block of the Prefect server; use e.g. env:{example}"
        )
    return reference


class Notify(BaseModel):
    """Who is told how a run ended: a webhook, a command, or both."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: list[Event] = Field(
        default=["failure", "gate", "completion"],
        min_length=1,
        description="Ends of a run that are told: a failure (also a cancelled run), an audit whose gate "
        "failed, or a run that completed.",
    )
    webhook: str | None = Field(
        None,
        description="Where the URL is kept that gets the message as JSON: `env:VARIABLE`, or `block:NAME` "
        "for a secret block of the Prefect server. Never the URL itself.",
        examples=["env:TOKMILL_WEBHOOK"],
    )
    command: list[str] = Field(
        default=[],
        description="Program and arguments, run without a shell, with the message as JSON on standard input.",
        examples=[["/usr/local/bin/tell", "--quiet"]],
    )
    timeout: float = Field(
        10.0, gt=0, le=300, description="Seconds until an attempt counts as failed.", allow_inf_nan=False
    )
    attempts: int = Field(3, ge=1, le=10, description="Attempts until the message is given up.")

    @field_validator("webhook")
    @classmethod
    def _no_address(cls, webhook: str | None) -> str | None:
        return check_reference(webhook, "the URL", "TOKMILL_WEBHOOK")

    @property
    def wanted(self) -> bool:
        """Whether anybody is told of anything."""
        return self.webhook is not None or bool(self.command)
