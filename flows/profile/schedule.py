"""`[schedule]`: when a deployment of the profile starts runs by itself, and what overlapping runs do.

Only deployments read it. It is no part of a run, so it is in no fingerprint.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

INTERVAL = r"^([1-9][0-9]{0,5}) *(s|min|h|d)$"
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_CRON = re.compile(r"[-*/,0-9A-Za-z#LW?]+( +[-*/,0-9A-Za-z#LW?]+){4}|@(hourly|daily|weekly|monthly|yearly)")
_RRULE = r"(^|[:;\n])FREQ=(YEARLY|MONTHLY|WEEKLY|DAILY|HOURLY|MINUTELY)\b"
_ANCHOR = datetime(2020, 1, 1)


class Schedule(BaseModel):
    """When a deployment runs the profile by itself. It changes no artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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
        except (ValueError, OSError) as error:  # ZoneInfoNotFoundError is a KeyError
            raise ValueError(f'schedule.timezone="{timezone}" is no time zone') from error
        except KeyError:
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
