"""What the server knows of the current flow run: name, tags, who asked for it, the values of its form."""

import logging
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.runtime import deployment, flow_run

from tokmill.flows.prefect.settings import HOW, USER
from tokmill.flows.profile import Profile
from tokmill.flows.profile.load import parse_override
from tokmill.flows.run.target import tags_of
from tokmill.tasks.store.runs import StartedBy

_LOG = logging.getLogger(__name__)
_RANDOM: Final = re.compile(r"[A-Za-z]+-[A-Za-z]+")  # `tan-newt`, or in the page's form `Generic-Loach`
Section: TypeAlias = dict[str, Any] | None
"""Values of one table of the profile, by key; None for the profile's own."""
TABLES: Final = ("train", "balance", "tokenizer", "mix", "pack", "holdout", "audit", "experiment")
"""The tables of the profile that a run's parameters have values of."""
ONLY_IN_FILES: Final = frozenset({"openlineage", "mlflow", "execution.credentials", "execution.address"})
"""What the form cannot change: who writes to the API must not name others' secrets, or where results go; a
cluster at another address would be sent programs, and believed what it sends back."""
KEPT: Final = "tokmill"
"""The key of the schema's `definitions` with what the registration keeps there."""
SHOWN: Final = "shown"
"""The key below it: version → section → key → the value that the form shows."""


def typed_name() -> str | None:
    """Return the current flow run's name if a person chose it; None for one of Prefect's random names."""
    name = flow_run.name
    return None if not name or _RANDOM.fullmatch(name) else str(name)


def tag_run(profile: Profile) -> None:
    """Add the tags of a profile to the current flow run; a run without tags is better than one that fails."""
    known = set(flow_run.tags)
    wanted = known | tags_of(profile)
    try:
        if wanted != known:
            with get_client(sync_client=True) as client:
                client.update_flow_run(UUID(str(flow_run.id)), tags=sorted(wanted))
    except Exception as error:
        _LOG.warning("the run has no tags: %s", error)


def started_at_the_server() -> StartedBy:
    """Return who asked for the current flow run, and how; `deployment` if the server does not say more."""
    name, labels = deployment.name or "", dict[str, Any]()
    try:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(str(flow_run.id)))
    except Exception as error:  # a run that does not know who asked for it is better than none
        _LOG.info("who asked for the run is not known: %s", error)
    else:
        labels = run.labels
        if run.auto_scheduled:
            return StartedBy(how="schedule", detail=name)
        if run.created_by is not None and run.created_by.type == "AUTOMATION":
            return StartedBy(how="automation", detail=run.created_by.display_value or name)
    return StartedBy(how=str(labels.get(HOW, "deployment")), user=str(labels.get(USER, "")), detail=name)


def overrides_of(
    sections: Mapping[str, Section], more: Sequence[str], shown: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values that replace the profile's own, as tables: those that the form did not show so.

    Raises:
        ProfileError: one of `more` is not of that form.
    """
    return _changed(sections, shown) | dict(map(parse_override, more))


def _changed(values: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that were not shown so; tables key by key, and an empty field is the profile's."""
    changed: dict[str, Any] = {}
    for key, value in values.items():
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
    shown: Mapping[str, Any] = versions.get(run.deployment_version, {})
    return shown
