"""Diagnoses a Prefect server through its API: whether scheduled runs start, and who gets answers.

A server with a broken scheduler looks healthy: its page and its API work, but runs never start. So the
diagnosis looks for runs that a working server must have created by now, and reports missing ones with the
likely cause. It works on any Prefect server, and changes nothing there, but that it frees
dead runs and workers on request.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import DeploymentSchedule, FlowRun, StateType, WorkerStatus
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import RRuleSchedule
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, temporary_settings

from tokmill.flows.doctor.report import Finding
from tokmill.flows.prefect.orphans import UNANSWERED, dead_runs, dead_workers, forget_worker
from tokmill.flows.prefect.server import no_answer
from tokmill.tasks.store import Store

# The scheduler works once per minute, and late runs are marked some seconds after their time.
SCHEDULER_PATIENCE = timedelta(seconds=150)
LATE_PATIENCE = timedelta(seconds=60)
HEALTH_SECONDS = 10
_PAGE = 200
_NAMED = 3
_FOREIGN = "page.invalid"  # a name that no host can have (RFC 2606)
_FREE = "`tokmill doctor --free` ends dead runs and removes dead workers"


@contextmanager
def _client_of(api: str) -> Iterator[SyncPrefectClient]:
    # First, because the client would retry many times if no server answers.
    httpx.get(f"{api}/health", timeout=HEALTH_SECONDS).raise_for_status()
    with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
        yield client


def look_at_runs(api: str, moment: datetime | None = None) -> list[Finding]:
    """Return the problems of scheduled runs at a server, at a moment; now if not given."""
    try:
        with _client_of(api) as client:
            deployments = list(_deployments(client))
            now = moment or datetime.now(UTC)
            return [
                *(found for each in deployments for found in _unscheduled(client, each, now)),
                *_late(client, {each.id: each for each in deployments}, now),
            ]
    except UNANSWERED as error:
        return [Finding("server", *no_answer(api, error))]


def look_at_dead(api: str, store: Store | None, *, free: bool = False) -> tuple[list[Finding], list[str]]:
    """Return the dead runs and workers of a server, and the names of those that were freed instead."""
    found, freed = list[Finding](), list[str]()
    with suppress(*UNANSWERED), _client_of(api) as client:  # `look_at_runs` reports a server that is down
        pools = {each.work_pool_name for each in _deployments(client) if "tokmill" in each.tags}
        workers = {pool: dead_workers(client, pool) for pool in sorted(filter(None, pools))}
        for run, state in dead_runs(store, client, [name for names in workers.values() for name in names]):
            if free:
                client.set_flow_run_state(run.id, state, force=True)
                freed.append(f"run {run.name}")
            else:
                what = f"run {run.name} ({run.id}) is shown as {run.state_name}, but {state.message}"
                found.append(Finding(f"dead {run.id}", what, _FREE))
        for pool, names in workers.items():
            for name in names if free else ():
                forget_worker(client, pool, name)
                freed.append(f"worker {name}")
            if names and not free:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                what = f"workers of the pool {pool} are gone: {', '.join(names[:_NAMED])}{more}"
                found.append(Finding(f"dead {pool}", what, _FREE, fails=False))
    return found, freed


def look_at_doors(api: str) -> list[Finding]:
    """Return the ways in which the server answers requests of foreign web pages."""
    found: list[tuple[str, str]] = []
    try:
        foreign = httpx.get(f"{api}/health", headers={"Origin": f"https://{_FOREIGN}"})
        if foreign.headers.get("access-control-allow-origin") in {"*", f"https://{_FOREIGN}"}:
            found.append(
                ("lets every web page read its answers", "set PREFECT_SERVER_CORS_ALLOWED_ORIGINS to its own")
            )
        token = httpx.get(f"{api}/csrf-token", params={"client": "doctor"})
        if token.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            found.append(
                ("accepts changes from every web page", "set PREFECT_SERVER_CSRF_PROTECTION_ENABLED=true")
            )
        if httpx.get(f"{api}/health", headers={"Host": _FOREIGN}).is_success:
            found.append(
                ("answers requests to any host name (DNS rebinding)", "use a proxy that checks Host")
            )
    except httpx.HTTPError:
        return []  # `look_at_runs` reports that
    return [
        Finding(f"door {number}", f"the server {what}", fix, fails=False)
        for number, (what, fix) in enumerate(found)
    ]


def _deployments(client: SyncPrefectClient) -> Iterator[DeploymentResponse]:
    offset = 0
    while page := client.read_deployments(limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)


def _unscheduled(
    client: SyncPrefectClient, deployment: DeploymentResponse, now: datetime
) -> Iterator[Finding]:
    """Yield an active schedule without a future run, although the scheduler had time to create one."""
    active = [schedule for schedule in deployment.schedules if schedule.active and _goes_on(schedule)]
    if deployment.paused or not active:
        return
    changed = [moment for each in (deployment, *active) if (moment := each.updated) is not None]
    if not changed or max(changed) > now - SCHEDULER_PATIENCE:
        return
    if not _scheduled(client, FlowRunFilterExpectedStartTime(after_=now), deployment.id, limit=1):
        yield Finding(
            f"scheduler {deployment.id}",
            f"deployment {deployment.name}: an active schedule without a future run: the server's "
            "scheduler fails",
            "look for schedule_deployments in its log, and for incompatible packages",
        )


def _late(
    client: SyncPrefectClient, deployments: dict[UUID, DeploymentResponse], now: datetime
) -> Iterator[Finding]:
    """Yield the runs that did not start in time, by deployment."""
    waiting: dict[UUID, list[FlowRun]] = {}
    for run in _scheduled(client, FlowRunFilterExpectedStartTime(before_=now - LATE_PATIENCE)):
        if run.deployment_id in deployments and run.state_name in {"Late", "Scheduled"}:
            waiting.setdefault(run.deployment_id, []).append(run)
    for identity, runs in waiting.items():
        deployment = deployments[identity]
        since = min(run.expected_start_time for run in runs if run.expected_start_time is not None)
        reason, fix, fails = _why_late(client, deployment)
        yield Finding(
            f"late {identity}",
            f"deployment {deployment.name}: {len(runs)} late, since {since:%Y-%m-%d %H:%M:%S} UTC: {reason}",
            fix,
            fails,
        )
    if any(run.state_name == "Scheduled" for runs in waiting.values() for run in runs):
        yield Finding(
            "late runs",
            "the server does not mark late runs: its loop monitor_late_runs fails",
            "look for it in the server's log, and start the server again",
        )


def _why_late(client: SyncPrefectClient, deployment: DeploymentResponse) -> tuple[str, str, bool]:
    """Return the cause, the fix, and whether it is a failure (a paused work pool is not)."""
    pool = deployment.work_pool_name
    if pool is None:
        return "it has no work pool, so no worker starts its runs", "register it again", True
    try:
        paused = client.read_work_pool(pool).is_paused
        workers = client.read_workers_for_work_pool(pool)
    except ObjectNotFound:
        return f"its work pool {pool} does not exist", "register it again", True
    if paused:
        return f"its work pool {pool} is paused", "resume it in the UI", False
    if any(worker.status == WorkerStatus.ONLINE for worker in workers):
        what = f"a worker of {pool} is online but has not started them: it is at a limit, or busy"
        return what, "wait, or raise the limit", False
    return (
        f"no worker is online for its work pool {pool}",
        f"start one with `tokmill server work --pool {pool}`, or `tokmill up` in its folder",
        True,
    )


def _scheduled(
    client: SyncPrefectClient,
    when: FlowRunFilterExpectedStartTime,
    deployment: UUID | None = None,
    limit: int = _PAGE,
) -> Sequence[FlowRun]:
    wanted = FlowRunFilter(
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.SCHEDULED])),
        expected_start_time=when,
        deployment_id=FlowRunFilterDeploymentId(any_=[deployment]) if deployment else None,
    )
    return client.read_flow_runs(flow_run_filter=wanted, limit=limit)


def _goes_on(schedule: DeploymentSchedule) -> bool:
    """Whether the schedule never ends; a rule with an end may have no date left."""
    rule = schedule.schedule
    return not (isinstance(rule, RRuleSchedule) and any(end in rule.rrule for end in ("UNTIL", "COUNT")))
