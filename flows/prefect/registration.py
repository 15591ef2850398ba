"""Registers a folder's work pool and deployments at the Prefect server that the environment names.

`tokmill up` runs `python -m tokmill.flows.prefect.registration FOLDER STORE`; `tokmill server deploy` calls
`register`.

Registering again keeps the settings that people made in the UI: schedules with their parameters, the
deployment's parameters and tags, pauses and limits of deployment and pool. It replaces what is defined by the
code and the profile: the form, the version, the entry point, the description and the work pool's template. A
schedule or limit is changed if the profile's own was changed since. A deployment whose profile is gone is
paused.
"""

import argparse
import gc
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.filters import (
    DeploymentFilter,
)
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from tokmill.flows.errors import ServeError
from tokmill.flows.prefect import schedules
from tokmill.flows.prefect.deployments import Deployment, deployments_of
from tokmill.flows.prefect.form import kept_in
from tokmill.flows.profile.served import ServedFolder

Line = tuple[Literal["note", "registered"], str]

_MOST = 200


def register(
    served: ServedFolder, *, any_profile: bool = False, with_store: bool = False, here: bool = False
) -> Iterator[Line]:
    """Create or update the work pool and the deployments of a served folder.

    Runs are given the store if their workers may not know it; `here`, workers use this environment of Python.

    Yields:
        `note` and a line about each profile that is not served, or each deployment that was paused;
        `registered` and the name of each deployment.

    Raises:
        ServeError: the work pool that others look after does not exist.
    """
    deployments, problems = deployments_of(served, any_profile=any_profile)
    yield from (("note", problem) for problem in problems)
    with get_client(sync_client=True) as client:
        _register_pool(client, served, here)
        there = {(one.flow_id, one.name): one for one in _registered(client, served)}
        for each in deployments:
            deployment = replace(each, store=str(served.store) if with_store else None)
            flow_id = client.create_flow(deployment.deployed.flow)
            known = there.pop((flow_id, deployment.name), None)
            try:
                if known is None:
                    _create(client, served, deployment, flow_id)
                else:
                    _renew(client, served, deployment, known)
            except PrefectHTTPStatusError as error:
                yield "note", f"not served: {deployment.name}: the server refuses it: {error.response.text}"
                continue
            yield "registered", f"{deployment.deployed.flow.name}/{deployment.name}"
        if not problems:  # a profile with a mistake is not gone
            yield from (("note", line) for line in _paused(client, served, list(there.values())))


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
    template = job_template(served, here=here)
    description = f"Runs work in {served.folder}"
    try:
        client.read_work_pool(served.work_pool)
    except ObjectNotFound:
        if served.pool is not None:
            raise ServeError(
                f"deploy: the server has no work pool {served.pool!r}; create it with `prefect work-pool "
                f"create {served.pool} --type …`, or leave --pool out for a pool of processes"
            ) from None
        client.create_work_pool(
            WorkPoolCreate(
                name=served.work_pool, type="process", base_job_template=template, description=description
            )
        )
    else:
        if served.pool is not None:  # its template is others'
            return
        renewed = WorkPoolUpdate(base_job_template=template, description=description)
        client.update_work_pool(served.work_pool, renewed)


def _registered(client: SyncPrefectClient, served: ServedFolder) -> Iterator[DeploymentResponse]:
    """Yield the deployments of a folder that the server has: those of its names."""
    begins = DeploymentFilter.model_validate({"name": {"like_": served.name}})
    offset = 0
    while page := client.read_deployments(deployment_filter=begins, limit=_MOST, offset=offset):
        yield from (one for one in page if one.name.partition(".")[0] == served.name)
        offset += len(page)


def _create(client: SyncPrefectClient, served: ServedFolder, made: Deployment, flow_id: Any) -> None:
    body = {"flow_id": str(flow_id), **made.by_code(served, None), **made.at_first(served)}
    client.request("POST", "/deployments/", json=body)


def _renew(
    client: SyncPrefectClient, served: ServedFolder, made: Deployment, known: DeploymentResponse
) -> None:
    """Change what the code and the profile define."""
    earlier = known.parameter_openapi_schema
    body = made.by_code(served, earlier)
    if known.work_pool_name is None:  # somebody deleted the pool
        body["work_pool_name"] = served.work_pool
    if kept_in(earlier).get("gone"):
        body["paused"] = False
    there = [one.model_dump(mode="json") for one in known.schedules]
    client.request("PATCH", "/deployments/{id}", path_params={"id": known.id}, json=body)
    for method, path, change in schedules.changes(made.schedule, kept_in(earlier).get("schedule"), there):
        url = f"/deployments/{known.id}/schedules{path}"
        client.request(method, url, **({} if change is None else {"json": change}))  # type: ignore[arg-type]


def _paused(client: SyncPrefectClient, served: ServedFolder, left: list[DeploymentResponse]) -> Iterator[str]:
    """Pause the deployments of profiles that are gone."""
    for known in left:
        if known.work_pool_name == served.work_pool and not known.paused:
            schema = known.parameter_openapi_schema or {}
            kept = {**kept_in(schema), "gone": True}
            body = {"paused": True, "parameter_openapi_schema": {**schema, "definitions": {"tokmill": kept}}}
            client.request("PATCH", "/deployments/{id}", path_params={"id": known.id}, json=body)
            yield f"the deployment {known.name} is paused: its profile is gone; delete it in the UI"


def main() -> None:
    """Register the folder that the arguments name, for the worker of a `tokmill up`."""
    gc.freeze()  # else Python looks for cycles in all of Prefect before it ends, 0.2 s
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("store", help="a folder or a URL")
    parser.add_argument("--any-profile", action="store_true")
    given = parser.parse_args()
    store = given.store if "://" in given.store else Path(given.store)
    for kind, line in register(ServedFolder(given.folder, store), any_profile=given.any_profile, here=True):
        if kind == "note":
            print(line)  # noqa: T201 - for `tokmill up`


if __name__ == "__main__":
    main()
