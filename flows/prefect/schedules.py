"""The schedule of a profile at the server: registered once, then only changed where the profile changes.

A deployment's schedules are people's, once they are there: what somebody sets in the UI (another time, active
or paused, further schedules, a deleted one) is kept whenever the deployment is registered anew. So only a
change of the profile's own schedule since the last registration is carried over, and it changes the times
alone, unless `active` was changed as well.
"""

import asyncio
import re
from typing import Any

from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.server.schemas import schedules as at_server
from pydantic import ValidationError

from tokmill.flows.errors import ServeError
from tokmill.flows.profile.problems import first_problem
from tokmill.flows.profile.sections import Schedule

SLUG = "profile"
"""Marks the schedule that comes from the profile among those of a deployment."""

_KINDS = {
    "cron": at_server.CronSchedule,
    "interval": at_server.IntervalSchedule,
    "rrule": at_server.RRuleSchedule,
}

Changes = tuple[str, str, Any]
"""A request to the server below the deployment's `/schedules`: method, path and body."""


def times_of(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule's times as the server has them.

    Raises:
        ServeError: Prefect refuses them, or its scheduler cannot find the next one, with which it would stop
            for every deployment.
    """
    zone = schedule.timezone
    made: CronSchedule | IntervalSchedule | RRuleSchedule
    try:
        if schedule.every is not None:
            made = IntervalSchedule(interval=schedule.every, anchor_date=schedule.anchor, timezone=zone)
        elif schedule.cron is not None:
            made = CronSchedule(cron=schedule.cron, timezone=zone)
        else:
            made = RRuleSchedule(rrule=str(schedule.rrule), timezone=zone)
    except ValidationError as error:
        raise ServeError(f"schedule: {first_problem(error)}") from error
    times = made.model_dump(mode="json", exclude_none=True)
    _check_next(times)
    return times


def _check_next(times: dict[str, Any]) -> None:
    """Find the next time as the server does; a step of 0 would keep it looking for ever."""
    said = times.get("cron") or times.get("rrule") or times["interval"]
    interval = re.search(r"INTERVAL=([^;\s]*)", str(times.get("rrule")), re.IGNORECASE)
    if interval and not re.fullmatch(r"0*[1-9][0-9]{0,5}", interval[1]):
        raise ServeError(f"schedule: rrule={said!r}: INTERVAL must be from 1 to 999999; leave it out for 1")
    kind = next(kind for name, kind in _KINDS.items() if name in times)
    try:
        asyncio.run(kind.model_validate(times).get_dates(1))
    except Exception as error:
        raise ServeError(f"schedule: {said!r} gives no time: {error}") from error


def registered(schedule: Schedule | None) -> dict[str, Any] | None:
    """Return what is kept of a schedule for the next registration."""
    if schedule is None or not schedule.starts_runs:
        return None
    return schedule.model_dump(mode="json", exclude_none=True, exclude={"if_running", "runs_at_once"})


def first(schedule: Schedule | None) -> list[dict[str, Any]]:
    """Return the schedules of a new deployment."""
    if schedule is None or not schedule.starts_runs:
        return []
    return [{"schedule": times_of(schedule), "active": schedule.active, "slug": SLUG, "parameters": {}}]


def changes(
    schedule: Schedule | None, before: dict[str, Any] | None, there: list[dict[str, Any]]
) -> list[Changes]:
    """Return what is to be changed of the schedules `there`, if the last one registered was `before`."""
    if registered(schedule) == before:
        return []
    ours = next((one for one in there if one.get("slug") == SLUG), None)
    if schedule is None or not schedule.starts_runs:
        return [] if ours is None else [("DELETE", f"/{ours['id']}", None)]
    if ours is None:
        return [("POST", "", first(schedule))]
    changed: dict[str, Any] = {"schedule": times_of(schedule)}
    if schedule.active != (before or {}).get("active", schedule.active):
        changed["active"] = schedule.active
    return [("PATCH", f"/{ours['id']}", changed)]
