"""The sections `[openlineage]` and `[mlflow]`: other systems that are told what a run does.

Both are off unless a profile asks for them. A secret is named by where it is kept, and never written down: an
environment variable of the process that executes the run, or a secret block of the Prefect server. Neither
section is part of a fingerprint or of a run's record.
"""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

_WAYS = ("file:", "http://", "https://")
ENVIRONMENT = "environment"
"""The client of OpenLineage is configured by its own variables and its `openlineage.yml`."""
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|block:[a-z0-9][a-z0-9-]*")


def check_reference(reference: str | None, what: str, example: str) -> str | None:
    """Return a reference to a secret, if it is one.

    Args:
        reference: as it is written in a profile; None if there is none.
        what: it refers to, e.g. `the URL`.
        example: name of a variable, for the message.

    Raises:
        ValueError: it is not a reference. The message does not repeat it, since it may be the secret itself.
    """
    if reference is not None and not _REFERENCE.fullmatch(reference):
        raise ValueError(
            f"it must say where {what} is kept, and not be {what}: env:VARIABLE for an environment variable, "
            f"or block:NAME for a secret block of the Prefect server; use e.g. env:{example}"
        )
    return reference


class OpenLineage(BaseModel):
    """Where the run's OpenLineage events go."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: str | None = Field(
        None,
        description="`file:PATH`, to which an event is added per line; `http://…` or `https://…`, a receiver "
        "such as Marquez; or `environment`, where OPENLINEAGE_URL and the other variables of its client, or "
        "its openlineage.yml, say. Nothing is sent if not set.",
        examples=["http://marquez.example:5000"],
    )
    namespace: str = Field(
        "tokmill", min_length=1, max_length=512, description="Namespace of the jobs: a team, an installation."
    )
    api_key: str | None = Field(
        None,
        description="Where the receiver's key is kept: `env:VARIABLE`, or `block:NAME` for a secret block "
        "of the Prefect server. Never the key itself.",
        examples=["env:MARQUEZ_API_KEY"],
    )
    timeout: float = Field(
        5.0, gt=0, le=300, description="Seconds until an attempt counts as failed.", allow_inf_nan=False
    )

    @field_validator("to")
    @classmethod
    def _check_way(cls, to: str | None) -> str | None:
        # The value may have a password in it, so it is not repeated.
        if to is not None and to != ENVIRONMENT and not to.startswith(_WAYS):
            raise ValueError(f"it must begin with {', '.join(_WAYS)} or be {ENVIRONMENT!r}")
        if to is not None and "@" in to.partition("://")[2].partition("/")[0]:
            raise ValueError("a password has no place in a profile; say in api_key where a key is kept")
        return to

    @field_validator("api_key")
    @classmethod
    def _no_secret(cls, api_key: str | None) -> str | None:
        return check_reference(api_key, "the key", "MARQUEZ_API_KEY")


class MLflow(BaseModel):
    """Where the run is shown in MLflow, with its parameters, figures and reports."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tracking_uri: str | None = Field(
        None,
        description="Address of the tracking server, or a local store of MLflow (`file:mlruns`, "
        "`sqlite:///mlflow.db`). Nothing is logged if not set. Credentials come from MLflow's own variables "
        "(MLFLOW_TRACKING_USERNAME, …).",
        examples=["http://mlflow.example:5000"],
    )
    experiment: str | None = Field(
        None,
        min_length=1,
        max_length=500,
        description="Experiment in MLflow; by default that of `[experiment]`, or the profile's name.",
    )
    artifacts: list[Literal["profile", "report", "card"]] = Field(
        default=["profile", "report", "card"],
        description="What is uploaded: the resolved profile, the audit's report, the data card.",
    )

    @field_validator("tracking_uri")
    @classmethod
    def _no_password(cls, uri: str | None) -> str | None:
        if uri is not None and "@" in uri.partition("://")[2].partition("/")[0]:
            raise ValueError(
                "a password has no place in a profile; set MLFLOW_TRACKING_USERNAME and "
                "MLFLOW_TRACKING_PASSWORD where the run is executed"
            )
        return uri
