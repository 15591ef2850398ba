"""Shows a run that found everything in the store at the configured Prefect server, without executing it.

Prefect's engine would take longer than the run itself. Where nothing is to be done, it has nothing to do: a
flow run, one task run per stage in the state Cached, and what describes their artifacts are created by the
server's client. The page shows what it shows of any run; all shards of a stage are one task run.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from prefect.client.base import ServerType, determine_server_type
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.utilities.urls import url_for

from tokmill.flows.page.links import Links
from tokmill.flows.profile import Profile
from tokmill.flows.run.dag import Job
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.page import Page, shown_to
from tokmill.flows.run.prefect_task import group_title
from tokmill.flows.run.results import RunResult, RunRow
from tokmill.flows.run.summary import summed_up
from tokmill.flows.run.target import name_of, tags_of
from tokmill.flows.server.pages import PAGES

_LOG = logging.getLogger(__name__)
_FLOW = "build-corpus"
_CACHED = {"type": "COMPLETED", "name": "Cached", "message": "The store has the artifact."}


def has_server() -> bool:
    """Whether a server is configured; an embedded one is not worth its start for a run without work."""
    return determine_server_type() not in {ServerType.EPHEMERAL, ServerType.UNCONFIGURED}


@dataclass
class ShownRun:
    """A flow run that was created at the server.

    Attributes:
        run_id: its id.
        link: its page.
    """

    run_id: str
    link: str | None
    _client: SyncPrefectClient
    _profile: Profile
    _machine: Machine

    def complete(self, result: RunResult, jobs: Mapping[Job, Sequence[RunRow]]) -> None:
        """Show the stages, their artifacts and the summary; a server that does not take them is logged.

        Args:
            result: of the run.
            jobs: each after its dependencies, with the rows of its steps.
        """
        try:
            self._show(result, jobs)
        except Exception as error:  # the run has completed, whoever sees it
            _LOG.warning("the server does not take what the run shows: %s", error)

    def _show(self, result: RunResult, jobs: Mapping[Job, Sequence[RunRow]]) -> None:
        store = self._machine.open_store()
        names = {self.run_id: name_of(self._profile)}
        links = Links(store.location, os.environ.get(PAGES), names, {self.run_id})
        page = Page(store, self.run_id, self._profile.name, links, self._task_runs(jobs))
        with shown_to(page):
            for row in result.rows:
                page.on_finish(row.task, row.how, row.seconds, row.ref, row.metrics)
            page.publish(partial(summed_up, self._profile, store, self._machine, result, links))

    def _task_runs(self, jobs: Mapping[Job, Sequence[RunRow]]) -> dict[str, UUID]:
        """Create one task run per job; return it for the title of each of its steps."""
        of_job: dict[Job, UUID] = {}
        for job, rows in jobs.items():
            if rows:
                before = [of_job[needed] for needed in job.dependencies if needed in of_job]
                of_job[job] = self._task_run(job, [row.task for row in rows], before)
        return {row.task: of_job[job] for job, rows in jobs.items() for row in rows}

    def _task_run(self, job: Job, titles: Sequence[str], before: Sequence[UUID]) -> UUID:
        title = group_title(titles)
        edges = [{"input_type": "task_run", "id": str(each)} for each in dict.fromkeys(before)]
        made = self._client.request(
            "POST",
            "/task_runs/",
            json={
                "flow_run_id": self.run_id,
                "name": title,
                "task_key": job.stage.task,
                "dynamic_key": title,
                "task_inputs": {"sealed": edges},
                "state": _CACHED,
            },
        )
        return UUID(made.json()["id"])


@contextmanager
def shown_unchanged(profile: Profile, machine: Machine) -> Iterator[ShownRun]:
    """Create a flow run that is Running for the length of this block, and Completed or Failed after it."""
    with get_client(sync_client=True) as client:
        run_id = _created(client, profile, machine)
        link = url_for("flow-run", UUID(run_id))
        try:
            yield ShownRun(run_id, link, client, profile, machine)
        except BaseException as error:
            _set_state(client, run_id, {"type": "FAILED", "name": "Failed", "message": str(error)})
            raise
        _set_state(client, run_id, {"type": "COMPLETED", "name": "Completed", "message": ""})


def _created(client: SyncPrefectClient, profile: Profile, machine: Machine) -> str:
    flow = client.request("POST", "/flows/", json={"name": _FLOW}).json()
    wanted = {
        "flow_id": flow["id"],
        "name": name_of(profile),
        "parameters": {"profile": profile.name, "store": machine.store},
        "tags": sorted(tags_of(profile)),
        "state": {"type": "RUNNING", "name": "Running"},
    }
    return str(client.request("POST", "/flow_runs/", json=wanted).json()["id"])


def _set_state(client: SyncPrefectClient, run_id: str, state: dict[str, Any]) -> None:
    body = {"state": state, "force": True}
    client.request("POST", "/flow_runs/{id}/set_state", path_params={"id": run_id}, json=body)
