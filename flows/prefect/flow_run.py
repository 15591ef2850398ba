"""What the server knows of the current flow run: name, tags, who asked for it, the values of its form."""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, cast
from uuid import UUID

from coolname.data import config  # Prefect's list of words
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.runtime import deployment, flow_run

from tokmill.flows.prefect.app import HOW, USER
from tokmill.flows.profile import Profile
from tokmill.flows.profile.load import parse_override
from tokmill.flows.run.target import tags_of
from tokmill.tasks.store.runs import StartedBy

_LOG = logging.getLogger(__name__)
# The page fills its form in with one of these and an animal, so a person hardly ever types such a name.
_OF_THE_FORM = frozenset(
    [
        *("Awesome", "Rustic", "Small", "Gorgeous", "Fantastic", "Sleek"),
        *("Intelligent", "Unbranded", "Refined", "Licensed", "Generic", "Practical"),
        *("Ergonomic", "Handcrafted", "Tasty", "Handmade", "Incredible"),
    ]
)
_LETTERS_OF_THE_FORM = 6
Section: TypeAlias = dict[str, Any] | None
"""Values of one table of the profile, by key; None for the profile's own."""
TABLES = ("train", "balance", "tokenizer", "mix", "pack", "holdout", "audit", "experiment")
"""The tables of the profile that a run's parameters have values of."""
ONLY_IN_FILES = frozenset({"openlineage", "mlflow", "execution.credentials", "execution.address"})
"""What the form cannot change: who writes to the API must not name others' secrets, or where results go; a
cluster at another address would be sent programs, and believed what it sends back."""
KEPT = "tokmill"
"""The key of the schema's `definitions` with what the registration keeps there."""
SHOWN = "shown"
"""The key below it: version → section → key → the value that the form shows."""


def typed_name() -> str | None:
    """Return the current flow run's name if a person chose it; None for one of Prefect's random names."""
    given = flow_run.name
    return given if given and not _is_random(given) else None


def tag_run(profile: Profile) -> None:
    """Add the tags of a profile to the current flow run; a run without tags is better than one that fails."""
    known = set(flow_run.tags)
    wanted = known | tags_of(profile)
    if wanted == known:
        return
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(str(flow_run.id)), tags=sorted(wanted))
    except Exception as error:
        _LOG.warning("the run has no tags: %s", error)


def _is_random(name: str) -> bool:
    """Whether a name looks like Prefect's random ones: `tan-newt`, or in the page's form `Generic-Loach`."""
    first, _, second = name.partition("-")
    if first in _OF_THE_FORM and second[:1].isupper() and len(second) <= _LETTERS_OF_THE_FORM:
        return True
    lists = cast(dict[str, dict[str, Any]], config)
    words = {word for part in lists.values() if part["type"] == "words" for word in part["words"]}
    parts = name.split("-")
    return len(parts) == 2 and words.issuperset(parts)


def started_at_the_server() -> StartedBy:
    """Return who asked for the current flow run, and how; `deployment` if the server does not say more."""
    name = deployment.name or ""
    try:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(str(flow_run.id)))
    except Exception as error:  # a run that does not know who asked for it is better than none
        _LOG.info("who asked for the run is not known: %s", error)
        return StartedBy(how="deployment", detail=name)
    return _by(run, name)


def _by(run: FlowRun, name: str) -> StartedBy:
    asked = {key: str(run.labels[key]) for key in (HOW, USER) if key in run.labels}
    if run.auto_scheduled:
        return StartedBy(how="schedule", detail=name)
    if run.created_by is not None and run.created_by.type == "AUTOMATION":
        return StartedBy(how="automation", detail=run.created_by.display_value or name)
    return StartedBy(how=asked.get(HOW, "deployment"), user=asked.get(USER, ""), detail=name)


def overrides_of(
    sections: Mapping[str, Section], more: Sequence[str], shown: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values that replace the profile's own, as tables: those that the form did not show so.

    Raises:
        ProfileError: one of `more` is not of that form.
    """
    changed = {name: _changed(given or {}, shown.get(name, {})) for name, given in sections.items()}
    return {name: table for name, table in changed.items() if table} | dict(map(parse_override, more))


def _changed(given: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were not shown so; tables key by key, and an empty field is the profile's."""
    changed: dict[str, Any] = {}
    for key, value in given.items():
        before = shown.get(key)
        if isinstance(value, Mapping):
            if below := _changed(value, before if isinstance(before, Mapping) else {}):
                changed[key] = below
        elif value is not None and (value != before or key not in shown):
            changed[key] = value
    return changed


@cache
def shown_values(run_id: str) -> Mapping[str, Any]:
    """Return the values that the form of a run showed, by section; empty if they are not known."""
    with get_client(sync_client=True) as client:
        run = client.read_flow_run(UUID(run_id))
        if run.deployment_id is None:
            return {}
        try:
            schema = client.read_deployment(run.deployment_id).parameter_openapi_schema or {}
        except ObjectNotFound:  # somebody has deleted it since
            return {}
    versions = schema.get("definitions", {}).get(KEPT, {}).get(SHOWN, {})
    found: Mapping[str, Any] = versions.get(run.deployment_version, {})
    return found
