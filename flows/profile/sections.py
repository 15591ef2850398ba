"""The sections that change no artifact: `[experiment]`, `[schedule]`, `[openlineage]`, `[mlflow]`.

The last two name systems that are told what a run does, and are no part of its record. A secret is named by
where it is kept, and never written down.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

INTERVAL = r"^([1-9][0-9]{0,5}) *(s|min|h|d)$"
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_CRON = re.compile(r"[-*/,0-9A-Za-z#LW?]+( +[-*/,0-9A-Za-z#LW?]+){4}|@(hourly|daily|weekly|monthly|yearly)")
_RRULE = r"(^|[:;\n])FREQ=(YEARLY|MONTHLY|WEEKLY|DAILY|HOURLY|MINUTELY)\b"
_ANCHOR = datetime(2020, 1, 1)
TAG = r"^[A-Za-z0-9][A-Za-z0-9_.:+-]{0,99}$"
"""A tag; without blanks and commas, so that it can be typed."""
Tag = Annotated[str, Field(pattern=TAG)]
_WAYS = ("file:", "http://", "https://")
ENVIRONMENT = "environment"
"""The client of OpenLineage is configured by its own variables and its `openlineage.yml`."""
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|block:[a-z0-9][a-z0-9-]*")
StageName: TypeAlias = Literal[
    "ingest",
    "hash",
    "holdout",
    "count",
    "merge_counts",
    "balance",
    "train",
    "adopt",
    "audit",
    "encode",
    "usage",
    "tokenizer_card",
    "fit",
    "score",
    "consume",
    "mix",
    "pack",
    "card",
    "cell",
    "sweep",
]
Kind: TypeAlias = Literal[
    "corpus",
    "counts",
    "balance",
    "tokenizer",
    "audit",
    "encoded",
    "usage",
    "tokenizer_card",
    "mixture",
    "packed",
    "validation",
    "card",
]


class Section(BaseModel):
    """A table of a profile, whose keys are checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Schedule(Section):
    """When a deployment runs the profile by itself. It changes no artifact."""

    cron: str | None = Field(
        None,
        description="Five fields: minute, hour, day of the month, month, day of the week.",
        examples=["0 3 * * *"],
    )
    interval: str | None = Field(
        None,
        pattern=INTERVAL,
        description="Instead of cron: the time from one run to the next, in s, min, h or d, counted from "
        "midnight of a 1 January.",
        examples=["6h"],
    )
    rrule: str | None = Field(
        None,
        pattern=_RRULE,
        description="Instead of cron: a rule of RFC 5545.",
        examples=["FREQ=MONTHLY;BYDAY=1MO;BYHOUR=3;BYMINUTE=0;BYSECOND=0"],
    )
    timezone: str = Field("UTC", description="Time zone of cron and rrule.", examples=["UTC"])
    active: bool = Field(
        False,
        description="Whether the schedule is active when it is first registered; if not, it is paused until "
        "somebody activates it in the Prefect UI.",
    )
    if_running: Literal["wait", "cancel"] = Field(
        "wait",
        description="What a run does while as many runs of the deployment go on as may: 'wait', or 'cancel' "
        "itself.",
    )
    runs_at_once: int = Field(
        1,
        ge=1,
        le=64,
        description="How many runs of the deployment may go on at once; if_running says what one more does.",
    )

    @field_validator("cron")
    @classmethod
    def _check_cron(cls, cron: str | None) -> str | None:
        if cron is not None and not _CRON.fullmatch(cron.strip()):
            raise ValueError(f'schedule.cron="{cron}" must have five fields; use e.g. "0 3 * * *"')
        return cron

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, timezone: str) -> str:
        try:
            ZoneInfo(timezone)
        except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            raise ValueError(
                f'schedule.timezone="{timezone}" is not a known time zone; use e.g. "Europe/Berlin"'
            ) from None
        return timezone

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        given = [name for name in ("cron", "interval", "rrule") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"schedule: {' and '.join(given)} exclude each other; give one of them")
        return self

    @property
    def starts_runs(self) -> bool:
        """Whether there are any times."""
        return (self.cron or self.interval or self.rrule) is not None

    @property
    def every(self) -> timedelta | None:
        """The interval; None for another kind of schedule."""
        found = re.fullmatch(INTERVAL, self.interval or "")
        return timedelta(seconds=int(found[1]) * _SECONDS[found[2]]) if found else None

    @property
    def anchor(self) -> datetime:
        """The moment that intervals are counted from."""
        zone = UTC if self.timezone == "UTC" else ZoneInfo(self.timezone)
        return _ANCHOR.replace(tzinfo=zone)


class Experiment(Section):
    """The group that a run belongs to, and what is to be remembered of it."""

    name: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Name of the experiment: its runs are listed and compared together.",
        examples=["temperature"],
    )
    tags: list[Tag] = Field(
        default=[],
        max_length=100,
        description="Tags of the run, by which runs are listed; more can be added afterwards.",
        examples=[["baseline"]],
    )
    notes: str = Field(
        "",
        max_length=10_000,
        description="What is tried, in the words of the person who tries it.",
        examples=["the crawl of May, without duplicates"],
    )


def check_reference(reference: str | None, what: str, example: str) -> str | None:
    """Return a reference to a secret; an error does not repeat it, since it may be the secret itself."""
    if reference is not None and not _REFERENCE.fullmatch(reference):
        raise ValueError(
            f"it must say where {what} is kept, and not be {what}: env:VARIABLE for an environment variable, "
            f"or block:NAME for a secret block of the Prefect server; use e.g. env:{example}"
        )
    return reference


class OpenLineage(Section):
    """Where the run's OpenLineage events go."""

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


class MLflow(Section):
    """Where the run is shown in MLflow, with its parameters, figures and reports."""

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
