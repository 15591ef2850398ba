"""What a person has filled in: the values of a run that differ from those that its form showed.

The form of a deployment shows the profile's values, and sends all of them, changed or not. A value that is
sent as it was shown is no override: the run takes the profile's own, as it is by then. Otherwise a change of
the profile would have no effect on runs from a form, or from a page that was opened before it.

Which values a run's form showed is known from the run's `deployment_version`. The deployment's schema keeps
the shown values of its last versions (`KEPT` in `flows.deploying.form`). A run without a deployment, or of an
unknown version, overrides whatever it names.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound

from tokmill.flows.profile.overrides import parse_override

Section: TypeAlias = dict[str, Any] | None
"""Values of one table of the profile, by key; None for the profile's own."""

TABLES = ("train", "balance", "tokenizer", "mix", "pack", "holdout", "audit", "experiment")
"""The tables of the profile that a run's parameters have values of."""

ONLY_IN_FILES = frozenset({"notify", "openlineage", "mlflow", "execution.credentials"})
"""What the form cannot change: who writes to the API must not name a program to run, others' secrets, or
where results go."""

KEPT = "tokmill"
"""The key of the schema's `definitions` with what the registration keeps there."""
SHOWN = "shown"
"""The key below it: version → section → key → the value that the form shows."""


def overrides_of(
    sections: Mapping[str, Section], more: Sequence[str], shown: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values that replace the profile's own, as nested tables.

    Args:
        sections: the values that the run was given.
        more: further ones, as `section.key=value`.
        shown: the values that the form showed, by section.

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
