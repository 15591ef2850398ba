"""The deployments of a folder: which flows people start from the UI, with which form, limits and schedule.

`build-corpus` has a deployment per profile, whose form shows the profile's values. The other flows have one
per folder, whose form has a choice of profiles, and empty fields for values to replace.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prefect import Flow
from prefect.server.schemas.schedules import CronSchedule, IntervalSchedule, RRuleSchedule
from pydantic import ValidationError

from tokmill.flows.errors import ProfileError, ServeError
from tokmill.flows.prefect.flow import (
    audit_tokenizer,
    build_corpus,
    collect_garbage,
    repack,
    sweep,
    train_tokenizer,
    verify_store,
)
from tokmill.flows.prefect.form import MACHINE, SECTIONS, Schema, field_of, form_of, label_of, object_of
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.profile.problems import first_problem
from tokmill.flows.profile.sections import Schedule
from tokmill.flows.profile.served import ServedFolder, ServedProfile, served_profiles
from tokmill.flows.run.sweeping import Grid
from tokmill.tasks.sweep.recommendation import SweepParams

TAG: Final = "tokmill"
SLUG: Final = "profile"
"""Marks the schedule that comes from the profile among those of a deployment."""
_COLLISION: Final = {"wait": "ENQUEUE", "cancel": "CANCEL_NEW"}


@dataclass(frozen=True)
class Deployed:
    """A flow that people start from the UI.

    Its form has the profile's tables in `sections` (none if it is about the whole store), `fields` of its
    own, and those of the machine but for some.
    """

    flow: Flow[..., Any]
    sections: Sequence[str]
    fields: Mapping[str, Schema] = field(default_factory=dict)
    without: Sequence[str] = ("until",)
    per_profile: bool = False
    schedule: Schedule | None = None

    @property
    def entrypoint(self) -> str:
        """The import path of the flow."""
        return f"{self.flow.fn.__module__}.{self.flow.name.replace('-', '_')}"

    def form(self, profile: Profile | None, choices: Sequence[str]) -> Schema:
        """Return its form."""
        taken = [name for name in MACHINE if name not in self.without] if self.sections else ["store"]
        return form_of(profile, self.sections, choices, taken, self.fields)


def _table(title: str, model: type[Any]) -> Schema:
    """Return a section with the fields of a model, which has plain values only."""
    properties = model.model_json_schema()["properties"]
    return object_of(title, {name: {**inner, "title": label_of(name)} for name, inner in properties.items()})


def _parameters(flow: Flow[..., Any], *names: str) -> dict[str, Schema]:
    """Return fields for parameters of a flow, as its signature and its docstring have them."""
    known = flow.parameters.properties
    return {name: field_of(name, known[name], known[name].get("default")) for name in names}


DEPLOYED: Final = (
    Deployed(build_corpus, tuple(SECTIONS), without=(), per_profile=True),
    Deployed(train_tokenizer, ("train", "balance", "holdout", "audit", "experiment")),
    Deployed(audit_tokenizer, ("tokenizer", "holdout", "audit", "experiment")),
    Deployed(
        sweep,
        ("train", "balance", "holdout", "experiment"),
        {"grid": _table("What is tried, all with all", Grid), "model": _table("The model", SweepParams)},
        without=("until", "refresh"),
    ),
    Deployed(repack, ("pack", "experiment"), _parameters(repack, "mixture"), without=("until", "rehash")),
    Deployed(verify_store, (), _parameters(verify_store, "deep"), schedule=Schedule(cron="0 1 * * *")),
    Deployed(
        collect_garbage,
        (),
        _parameters(collect_garbage, "older_than_days", "keep", "apply"),
        schedule=Schedule(cron="0 2 * * 0"),
    ),
)


@dataclass(frozen=True)
class Deployment:
    """A deployment, as it is registered; `given` is how its runs name its profile, unless they choose one."""

    name: str
    deployed: Deployed
    schema: Schema
    profile: Profile | None = None
    given: str | None = None

    @property
    def schedule(self) -> Schedule | None:
        """When it starts runs by itself."""
        return self.deployed.schedule if self.profile is None else self.profile.schedule

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return [TAG] if self.profile is None else [TAG, self.profile.name]

    def parameters(self, store: str | None = None) -> dict[str, Any]:
        """Return the parameters of runs that are given no others."""
        parameters = {"profile": self.given, "store": store}
        return {name: value for name, value in parameters.items() if value is not None}

    def concurrency(self) -> dict[str, Any]:
        """Return how many runs go on at once, and what a further one does."""
        schedule = self.schedule or Schedule()
        options = {"collision_strategy": _COLLISION[schedule.if_running]}
        return {"concurrency_limit": schedule.runs_at_once, "concurrency_options": options}

    def description(self, served: ServedFolder) -> str:
        """Return what the UI says of it."""
        own = [self.profile.description] if self.profile is not None and self.profile.description else []
        where = f"Runs work in `{served.folder}` and keep their artifacts in `{served.store}`."
        return "\n\n".join([*own, str(self.deployed.flow.description), where])


def deployments_of(served: ServedFolder, *, any_profile: bool = False) -> tuple[list[Deployment], list[str]]:
    """Return the deployments of a served folder, and why some profiles have none."""
    profiles, problems = dict[ServedProfile, Profile](), list[str]()
    for one in served_profiles(served.folder):
        try:
            profile = load_profile(one.path)
            schedules_of(profile.schedule)
            profiles[one] = profile
        except ProfileError as error:
            problems.append(f"not served: {error}")
        except ServeError as error:
            problems.append(f"not served: profile {one.given!r}: {error}; correct its [schedule]")
    made = [each for deployed in DEPLOYED for each in _made(served.name, deployed, profiles, any_profile)]
    return made, problems


def _made(
    name: str, deployed: Deployed, profiles: Mapping[ServedProfile, Profile], any_profile: bool
) -> Iterator[Deployment]:
    if deployed.per_profile:
        for one, profile in profiles.items():
            form = deployed.form(profile, [one.given])
            yield Deployment(f"{name}.{one.slug}", deployed, form, profile, one.given)
    if any_profile or not deployed.per_profile:
        choices = [] if any_profile else [one.given for one in profiles]
        yield Deployment(name, deployed, deployed.form(None, choices))


def times_of(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule's times as the server has them.

    Raises:
        ServeError: Prefect refuses them, or its scheduler cannot find the next one, with which it would stop
            for every deployment.
    """
    said = schedule.cron or schedule.rrule or schedule.interval
    step = re.search(r"INTERVAL=([^;\s]*)", schedule.rrule or "", re.IGNORECASE)
    if step and not re.fullmatch("0*[1-9][0-9]{0,5}", step[1]):  # 0 would keep the scheduler looking for ever
        raise ServeError(f"schedule: rrule={said!r}: INTERVAL must be from 1 to 999999; leave it out for 1")
    kind: type[CronSchedule | IntervalSchedule | RRuleSchedule]
    if schedule.every is not None:
        kind, when = IntervalSchedule, {"interval": schedule.every, "anchor_date": schedule.anchor}
    elif schedule.cron is not None:
        kind, when = CronSchedule, {"cron": schedule.cron}
    else:
        kind, when = RRuleSchedule, {"rrule": schedule.rrule}
    try:
        times = kind.model_validate({**when, "timezone": schedule.timezone})
        asyncio.run(times.get_dates(1))
    except ValidationError as error:
        raise ServeError(f"schedule: {first_problem(error)}") from error
    except Exception as error:
        raise ServeError(f"schedule: {said!r} gives no time: {error}") from error
    found: dict[str, Any] = times.model_dump(mode="json", exclude_none=True)
    return found


def schedules_of(schedule: Schedule | None) -> list[dict[str, Any]]:
    """Return the schedules of a new deployment; raises as `times_of`."""
    if schedule is None or not schedule.starts_runs:
        return []
    return [{"schedule": times_of(schedule), "active": schedule.active, "slug": SLUG, "parameters": {}}]


def schedule_changes(
    schedule: Schedule | None, before: Mapping[str, Any], there: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str, Any]]:
    """Return what is to be changed of the schedules `there`, as requests: method, path and body.

    A deployment's schedules are people's, once they are there. Only a change of the profile's own schedule
    since `before` is carried over: of its times, and of `active` if that was changed as well.
    """
    ours = next((f"/{one['id']}" for one in there if one.get("slug") == SLUG), None)
    new = schedules_of(schedule)
    if not new or schedule is None:
        return [] if ours is None else [("DELETE", ours, None)]
    if ours is None:
        return [("POST", "", new)]
    active = {} if schedule.active == before.get("active", schedule.active) else {"active": schedule.active}
    return [("PATCH", ours, {"schedule": new[0]["schedule"], **active})]
