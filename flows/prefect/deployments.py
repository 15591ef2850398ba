"""The deployments of a folder: which flows people start from the UI, with which form and what limits.

`build-corpus` has a deployment per profile, whose form shows the profile's values. The other flows have one
per folder, whose form has a choice of profiles, and empty fields for values to replace.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prefect import Flow

from tokmill.flows.errors import ProfileError, ServeError
from tokmill.flows.prefect import schedules
from tokmill.flows.prefect.flow import audit_tokenizer, build_corpus, repack, sweep, train_tokenizer
from tokmill.flows.prefect.form import (
    MACHINE,
    Schema,
    field_of,
    form_of,
    in_order,
    keeping,
    kept_in,
    label_of,
    version_of,
)
from tokmill.flows.prefect.upkeep import collect_garbage, verify_store
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.profile.sections import Schedule
from tokmill.flows.profile.served import ServedFolder, ServedProfile, served_profiles
from tokmill.flows.run.sweeping import Grid
from tokmill.tasks.sweep.recommendation import SweepParams

TAG = "tokmill"
_COLLISION = {"wait": "ENQUEUE", "cancel": "CANCEL_NEW"}


@dataclass(frozen=True)
class Deployed:
    """A flow that people start from the UI.

    Attributes:
        flow: the flow.
        sections: the profile's tables in its form; none if it is about the whole store.
        fields: further fields of its form, after the profile.
        without: fields of the machine that it has not.
        per_profile: whether every profile has a deployment of its own.
        schedule: when it starts runs by itself, unless its profile says that.
    """

    flow: Flow[..., Any]
    sections: Sequence[str]
    fields: Mapping[str, Schema] = field(default_factory=dict)
    without: Sequence[str] = ("until",)
    per_profile: bool = False
    schedule: Schedule | None = None

    @property
    def of_store(self) -> bool:
        """Whether it is about the whole store, so that its form has no profile."""
        return not self.sections

    @property
    def entrypoint(self) -> str:
        """The import path of the flow."""
        return f"{self.flow.fn.__module__}.{self.flow.name.replace('-', '_')}"

    def form(self, profile: Profile | None, choices: Sequence[str]) -> Schema:
        """Return its form, with the flow's own fields after the profile."""
        taken = [] if self.of_store else [name for name in MACHINE if name not in self.without]
        schema = form_of(profile, self.sections, choices, ["store"] if self.of_store else taken)
        chosen, *others = schema["properties"].items()
        if self.of_store:
            return schema | {"properties": in_order(dict([*self.fields.items(), *others])), "required": []}
        return schema | {"properties": in_order(dict([chosen, *self.fields.items(), *others]))}


def _table(title: str, model: type[Any]) -> Schema:
    """Return a section with the fields of a model, which has plain values only."""
    schema: Schema = model.model_json_schema()
    fields = {
        name: {**inner, "title": label_of(name), "position": index}
        for index, (name, inner) in enumerate(schema["properties"].items())
    }
    return {"title": title, "type": "object", "properties": fields, "additionalProperties": False}


def _parameters(flow: Flow[..., Any], *names: str) -> dict[str, Schema]:
    """Return fields for parameters of a flow, as its signature and its docstring have them."""
    known = flow.parameters.properties
    return {name: field_of(name, known[name], known[name].get("default")) for name in names}


DEPLOYED = (
    Deployed(
        build_corpus,
        ("train", "balance", "tokenizer", "mix", "pack", "holdout", "audit", "experiment"),
        without=(),
        per_profile=True,
    ),
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
    """A deployment, as it is registered.

    Attributes:
        name: its name.
        deployed: its flow.
        profile: the profile that it is for; None if its form has a choice.
        given: how runs name that profile.
        schema: its form.
        store: the store that its runs are given; None if the worker's environment names it.
    """

    name: str
    deployed: Deployed
    profile: Profile | None
    given: str | None
    schema: Schema
    store: str | None = None

    @property
    def schedule(self) -> Schedule | None:
        """When it starts runs by itself."""
        return self.deployed.schedule if self.profile is None else self.profile.schedule

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of runs that are given no others."""
        given = {"profile": self.given, "store": self.store}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def tags(self) -> list[str]:
        """Its tags."""
        return [TAG] if self.profile is None else [TAG, self.profile.name]

    @property
    def concurrency(self) -> dict[str, Any]:
        """How many runs go on at once, one unless the profile says more, and what a further one does."""
        said = self.schedule or Schedule()
        options = {"collision_strategy": _COLLISION[said.if_running]}
        return {"concurrency_limit": said.runs_at_once, "concurrency_options": options}

    def description(self, served: ServedFolder) -> str:
        """What the UI says of it."""
        own = (
            "" if self.profile is None or not self.profile.description else f"{self.profile.description}\n\n"
        )
        where = f"Runs work in `{served.folder}` and keep their artifacts in `{served.store}`."
        return f"{own}{self.deployed.flow.description}\n\n{where}"

    def by_code(self, served: ServedFolder, earlier: Schema | None) -> dict[str, Any]:
        """Return what the code and the profile define, which every registration replaces."""
        kept = schedules.registered(self.schedule)
        limits = self.concurrency
        schema = keeping(self.schema, earlier, schedule=kept, limits=limits)
        new = {} if kept_in(earlier).get("limits") == limits else limits
        return {
            **new,
            "version": version_of(self.schema),
            "description": self.description(served),
            "entrypoint": self.deployed.entrypoint,
            "parameter_openapi_schema": schema,
            "enforce_parameter_schema": True,
            "pull_steps": [],
            "job_variables": {},
        }

    def at_first(self, served: ServedFolder) -> dict[str, Any]:
        """Return the rest of a new deployment, which is people's from then on."""
        return {
            "name": self.name,
            "tags": self.tags,
            "parameters": self.parameters,
            "schedules": schedules.first(self.schedule),
            "work_pool_name": served.work_pool,
        }


def deployments_of(served: ServedFolder, *, any_profile: bool = False) -> tuple[list[Deployment], list[str]]:
    """Return the deployments of a served folder, and why some profiles have none."""
    profiles: dict[ServedProfile, Profile] = {}
    problems = []
    for one in served_profiles(served.folder):
        try:
            profiles[one] = load_profile(one.path)
            if profiles[one].schedule is not None:
                schedules.first(profiles[one].schedule)
        except ProfileError as error:
            problems.append(f"not served: {error}")
        except ServeError as error:
            del profiles[one]
            problems.append(f"not served: profile {one.given!r}: {error}; correct its [schedule]")
    made = [each for deployed in DEPLOYED for each in _made(served, deployed, profiles, any_profile)]
    return made, problems


def _made(
    served: ServedFolder, deployed: Deployed, profiles: Mapping[ServedProfile, Profile], any_profile: bool
) -> list[Deployment]:
    if not deployed.per_profile:
        choices = [] if any_profile else [one.given for one in profiles]
        schema = deployed.form(None, choices)
        return [Deployment(served.name, deployed, None, None, schema)]
    found = [
        Deployment(
            f"{served.name}.{one.slug}",
            deployed,
            profile,
            one.given,
            deployed.form(profile, [one.given]),
        )
        for one, profile in profiles.items()
    ]
    if any_profile:
        schema = deployed.form(None, [])
        found.append(Deployment(served.name, deployed, None, None, schema))
    return found
