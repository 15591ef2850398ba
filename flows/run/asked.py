"""Who asked the Prefect server for the current run, as far as the server knows.

A schedule and an automation are known to the server. Our server also notes whether a request came from a
page or from a program, and who was signed in (`flows.server.askers`); other servers tell no more than that
somebody asked for a run of a deployment.
"""

import logging
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.runtime import deployment, flow_run

from tokmill.flows.server.askers import HOW, USER
from tokmill.tasks.store.runs import StartedBy

_LOG = logging.getLogger(__name__)


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
