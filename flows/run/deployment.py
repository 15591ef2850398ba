"""Registers a served folder's work pool and deployments at the Prefect server that the environment names.

`tokmill up` runs `python -m tokmill.flows.run.deployment FOLDER STORE`. Teams that deploy from a checkout use
`prefect.yaml`, which has the same content (a test compares the two).

Registering again keeps the settings that people made in the UI: schedules with their parameters, the
deployment's parameters and tags, pauses and limits of deployment and pool. It replaces what is defined by the
code: the form, the entry point, the description and the work pool's template.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import Flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate, WorkPoolUpdate
from prefect.client.schemas.responses import DeploymentResponse
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType
from prefect.utilities.callables import parameter_schema

from tokmill.flows.run.flow import build_corpus
from tokmill.flows.run.sweep_flow import sweep_tokenizers
from tokmill.flows.server.served_folder import ServedFolder

NIGHTLY = "0 3 * * *"


@dataclass(frozen=True)
class Deployed:
    """A flow that people start from the UI.

    Attributes:
        flow: the flow.
        description: what it is for.
        parameters: of runs that name no others.
        cron: when it runs by itself, in UTC, once somebody has activated that; None for never.
    """

    flow: Flow[..., Any]
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"profile": "quickstart"})
    cron: str | None = None


BUILD = Deployed(
    build_corpus,
    "Raw text to packed token shards: one profile, every stage cached by fingerprint.",
    cron=NIGHTLY,
)
SWEEP = Deployed(
    sweep_tokenizers,
    "Tokenizers of several families, temperatures and sizes, measured side by side, and which to take.",
)
DEPLOYED = (BUILD, SWEEP)


def register(served: ServedFolder) -> None:
    """Create or update the work pool and the deployments of a served folder."""
    with get_client(sync_client=True) as client:
        _register_pool(client, served)
        for deployed in DEPLOYED:
            try:
                known = client.read_deployment_by_name(f"{deployed.flow.name}/{served.name}")
            except ObjectNotFound:
                deployment(served, deployed).apply()
            else:
                client.update_deployment(known.id, _renewal(served, deployed, known))


def deployment(served: ServedFolder, deployed: Deployed = BUILD) -> RunnerDeployment:
    """Return a deployment for its first registration; a schedule is paused."""
    return RunnerDeployment.from_flow(
        deployed.flow,
        served.name,
        description=_described(served, deployed),
        parameters=dict(deployed.parameters),
        schedules=[Cron(deployed.cron, timezone="UTC", active=False)] if deployed.cron else [],
        work_pool_name=served.work_pool,
        entrypoint_type=EntrypointType.MODULE_PATH,
        tags=["tokmill"],
    )


def job_template(served: ServedFolder) -> dict[str, Any]:
    """Return the work pool's template: a fixed working folder, and no variable that a run can set.

    With Prefect's own template for processes, any run can choose its command, environment and working folder.
    The configuration has no `env` either, because values of a run would override it; runs inherit the
    worker's environment.
    """
    return {
        "job_configuration": {"working_dir": str(served.folder), "stream_output": True},
        "variables": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def _register_pool(client: SyncPrefectClient, served: ServedFolder) -> None:
    template = job_template(served)
    description = f"Runs work in {served.folder}"
    try:
        client.read_work_pool(served.work_pool)
    except ObjectNotFound:
        client.create_work_pool(
            WorkPoolCreate(
                name=served.work_pool, type="process", base_job_template=template, description=description
            )
        )
    else:
        renewed = WorkPoolUpdate(base_job_template=template, description=description)
        client.update_work_pool(served.work_pool, renewed)


def _renewal(served: ServedFolder, deployed: Deployed, known: DeploymentResponse) -> DeploymentUpdate:
    """Return the fields that are defined by the code; all others stay unchanged."""
    made = deployment(served, deployed)
    renewal = DeploymentUpdate(
        description=made.description,
        entrypoint=made.entrypoint,
        job_variables={},
        parameter_openapi_schema=parameter_schema(deployed.flow).model_dump(exclude_unset=True),
        pull_steps=[],
    )
    if known.work_pool_name is None:  # somebody deleted the pool
        renewal.work_pool_name = served.work_pool
    return renewal


def _described(served: ServedFolder, deployed: Deployed) -> str:
    where = f"Runs work in `{served.folder}` and keep their artifacts in `{served.store}`."
    return f"{deployed.description}\n\n{where}"


if __name__ == "__main__":
    register(ServedFolder(Path(sys.argv[1]), Path(sys.argv[2])))
