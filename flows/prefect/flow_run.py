"""What the server knows of the current flow run: name, tags, who asked for it, the values of its form."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from prefect.client.orchestration import get_client
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
    sections: Mapping[str, Section], more: Sequence[str], profile: Profile | None
) -> dict[str, Any]:
    """Return the values that replace the profile's own, as tables: those that differ from them.

    Raises:
        ProfileError: one of `more` is not of that form.
    """
    own = {} if profile is None else {name: values_of(profile, name) for name in sections}
    return changed(sections, own) | dict(map(parse_override, more))


def values_of(profile: Profile, table: str) -> dict[str, Any]:
    """Return the values of one of a profile's tables, as a form shows them."""
    section = profile.training() if table == "train" else getattr(profile, table)
    return {} if section is None else dict(section.model_dump(mode="json", exclude_none=True))


def changed(values: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that differ; tables key by key, and an empty field is the profile's own."""
    new: dict[str, Any] = {}
    for key, value in values.items():
        before = own.get(key)
        if isinstance(value, Mapping):
            if below := changed(value, before if isinstance(before, Mapping) else {}):
                new[key] = below
        elif value is not None and (value != before or key not in own):
            new[key] = value
    return new
