"""Registers a folder's work pool and deployments at the Prefect server that the environment names.

What people set in the UI is kept; what code and profile define is replaced: form, version, entry point,
description, the pool's template, and schedule and limit if the profile's `[schedule]` changed.
"""

import shlex
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from tokmill.flows.errors import ServeError
from tokmill.flows.prefect.deployments import Deployment, deployments_of, schedule_changes, schedules_of
from tokmill.flows.prefect.form import Schema
from tokmill.flows.prefect.worker import all_deployments
from tokmill.flows.profile.served import ServedFolder

_KEPT = "tokmill"
"""The key of the schema's `definitions` with what is kept there for the next registration."""


def register(
    served: ServedFolder,
    note: Callable[[str], None],
    *,
    any_profile: bool = False,
    store: str | None = None,
    here: bool = False,
) -> list[str]:
    """Create or update the work pool and the deployments of a served folder; return the deployments' names.

    Args:
        served: the folder.
        note: called with a line about each profile that is not served, or each deployment that is paused.
        any_profile: whether a run may name a profile outside of the folder.
        store: what runs are given as their store, if their workers may not know it.
        here: workers use this environment of Python.

    Raises:
        ServeError: the work pool that others look after does not exist.
    """
    deployments, problems = deployments_of(served, any_profile=any_profile)
    for problem in problems:
        note(problem)
    names = []
    with get_client(sync_client=True) as client:
        _register_pool(client, served, here)
        there = {
            (one.flow_id, one.name): one
            for one in all_deployments(client, served.name)
            if one.name.partition(".")[0] == served.name
        }
        for each in deployments:
            flow_id = client.create_flow(each.deployed.flow)
            known = there.pop((flow_id, each.name), None)
            try:
                if known is None:
                    _create(client, served, each, flow_id, store)
                else:
                    _renew(client, served, each, known)
            except PrefectHTTPStatusError as error:
                note(f"not served: {each.name}: the server refuses it: {error.response.text}")
                continue
            names.append(f"{each.deployed.flow.name}/{each.name}")
        for gone in [] if problems else there.values():  # a profile with a mistake is not gone
            if gone.work_pool_name == served.work_pool and not gone.paused:
                _pause(client, gone)
                note(f"the deployment {gone.name} is paused: its profile is gone; delete it in the UI")
    return names


def job_template(served: ServedFolder, *, here: bool = False) -> dict[str, Any]:
    """Return the work pool's template: a fixed working folder, and no variable that a run can set.

    With Prefect's own template for processes, any run can choose its command, environment and working folder.
    The configuration has no `env` either, because values of a run would override it; runs inherit the
    worker's environment.

    Without a command, Prefect imports itself once more before a run, to find its code, and once more after a
    run that is cancelled, to look for hooks. Our code is installed, so the worker can do both by itself: it
    saves seconds of either. The command has a path, which is right only for workers of this environment.
    """
    command = {"command": shlex.join([sys.executable, "-P", "-m", "prefect.engine"])} if here else {}
    return {
        "job_configuration": {"working_dir": str(served.folder), "stream_output": True, **command},
        "variables": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def _register_pool(client: SyncPrefectClient, served: ServedFolder, here: bool) -> None:
    ours = {
        "base_job_template": job_template(served, here=here),
        "description": f"Runs work in {served.folder}",
    }
    try:
        client.read_work_pool(served.work_pool)
    except ObjectNotFound:
        if served.pool is not None:
            raise ServeError(
                f"deploy: the server has no work pool {served.pool!r}; create it with `prefect work-pool "
                f"create {served.pool} --type …`, or leave --pool out for a pool of processes"
            ) from None
        client.create_work_pool(WorkPoolCreate(name=served.work_pool, type="process", **ours))
    else:
        if served.pool is None:  # the template of another one is others'
            client.update_work_pool(served.work_pool, WorkPoolUpdate(**ours))


def _kept_in(schema: Schema | None) -> dict[str, Any]:
    """Return what the last registration kept in a schema; empty for one that is not ours."""
    kept: dict[str, Any] = ((schema or {}).get("definitions") or {}).get(_KEPT, {})
    return kept


def _by_code(served: ServedFolder, made: Deployment) -> dict[str, Any]:
    """Return what the code and the profile define, which every registration replaces."""
    kept = {_KEPT: {"schedule": _schedule(made)}}
    return {
        "version": metadata.version("tokmill"),
        "description": made.description(served),
        "entrypoint": made.deployed.entrypoint,
        "parameter_openapi_schema": made.schema | {"definitions": kept},
        "enforce_parameter_schema": True,
        "pull_steps": [],
        "job_variables": {},
    }


def _schedule(made: Deployment) -> dict[str, Any]:
    """Return what is kept of a schedule for the next registration."""
    return {} if made.schedule is None else made.schedule.model_dump(mode="json", exclude_none=True)


def _create(
    client: SyncPrefectClient, served: ServedFolder, made: Deployment, flow_id: UUID, store: str | None
) -> None:
    """Register a deployment with what is people's from then on."""
    at_first = {
        "flow_id": str(flow_id),
        "name": made.name,
        "tags": made.tags,
        "parameters": made.parameters(store),
        "schedules": schedules_of(made.schedule),
        "work_pool_name": served.work_pool,
    }
    body = {**_by_code(served, made), **made.concurrency(), **at_first}
    client.request("POST", "/deployments/", json=body)


def _renew(
    client: SyncPrefectClient, served: ServedFolder, made: Deployment, known: DeploymentResponse
) -> None:
    """Change what the code and the profile define."""
    kept = _kept_in(known.parameter_openapi_schema)
    before = kept.get("schedule", {})
    is_changed = before != _schedule(made)
    body = _by_code(served, made)
    body |= made.concurrency() if is_changed else {}
    if known.work_pool_name is None:  # somebody deleted the pool
        body["work_pool_name"] = served.work_pool
    if kept.get("gone"):
        body["paused"] = False
    client.request("PATCH", "/deployments/{id}", path_params={"id": known.id}, json=body)
    there = [one.model_dump(mode="json") for one in known.schedules]
    for method, path, change in schedule_changes(made.schedule, before, there) if is_changed else ():
        url = f"/deployments/{known.id}/schedules{path}"
        client.request(method, url, **({} if change is None else {"json": change}))  # type: ignore[arg-type]


def _pause(client: SyncPrefectClient, known: DeploymentResponse) -> None:
    schema = known.parameter_openapi_schema or {}
    definitions = {_KEPT: {**_kept_in(schema), "gone": True}}
    body = {"paused": True, "parameter_openapi_schema": {**schema, "definitions": definitions}}
    client.request("PATCH", "/deployments/{id}", path_params={"id": known.id}, json=body)
