"""Diagnoses a Prefect server through its API: whether scheduled runs start, and who gets answers.

A server with a broken scheduler looks healthy, so runs are looked for that a working one must have made.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, WorkerStatus
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import RRuleSchedule
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, temporary_settings

from tokmill.flows.doctor.report import Finding
from tokmill.flows.prefect.connection import no_answer
from tokmill.flows.prefect.worker import UNANSWERED, all_deployments, dead_runs, dead_workers, forget_worker
from tokmill.tasks.store import Store

# The scheduler works once per minute, and late runs are marked some seconds after their time.
SCHEDULER_PATIENCE: Final = timedelta(seconds=150)
LATE_PATIENCE: Final = timedelta(seconds=60)
_PAGE: Final = 200
_NAMED: Final = 3
_FOREIGN: Final = "page.invalid"  # a name that no host can have (RFC 2606)
_FREE: Final = "`tokmill doctor --free` ends dead runs and removes dead workers"


@contextmanager
def _client_of(api: str) -> Iterator[SyncPrefectClient]:
    # First, because the client would retry many times if no server answers.
    httpx.get(f"{api}/health", timeout=10).raise_for_status()
    with temporary_settings({PREFECT_API_URL: api}), get_client(sync_client=True) as client:
        yield client


def look_at_runs(api: str, moment: datetime | None = None) -> list[Finding]:
    """Return the problems of scheduled runs at a server, at a moment; now if not given."""
    now = moment or datetime.now(UTC)
    try:
        with _client_of(api) as client:
            deployments = {each.id: each for each in all_deployments(client)}
            idle = [found for each in deployments.values() for found in _unscheduled(client, each, now)]
            return [*idle, *_late(client, deployments, now)]
    except UNANSWERED as error:
        return [Finding("server", *no_answer(api, error))]


def look_at_dead(api: str, store: Store | None, *, free: bool = False) -> tuple[list[Finding], list[str]]:
    """Return the dead runs and workers of a server, and the names of those that were freed instead."""
    found, freed = list[Finding](), list[str]()
    with suppress(*UNANSWERED), _client_of(api) as client:  # `look_at_runs` reports a server that is down
        pools = {each.work_pool_name for each in all_deployments(client) if "tokmill" in each.tags}
        workers = {pool: dead_workers(client, pool) for pool in sorted(filter(None, pools))}
        for run, state in dead_runs(store, client, [name for names in workers.values() for name in names]):
            if free:
                client.set_flow_run_state(run.id, state, force=True)
                freed.append(f"run {run.name}")
            else:
                what = f"run {run.name} ({run.id}) is shown as {run.state_name}, but {state.message}"
                found.append(Finding(f"dead {run.id}", what, _FREE))
        for pool, names in workers.items():
            if free:
                freed += [f"worker {name}" for name in names]
                for name in names:
                    forget_worker(client, pool, name)
            elif names:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                what = f"workers of the pool {pool} are gone: {', '.join(names[:_NAMED])}{more}"
                found.append(Finding(f"dead {pool}", what, _FREE, fails=False))
    return found, freed


def look_at_doors(api: str) -> list[Finding]:
    """Return the ways in which the server answers requests of foreign web pages."""
    page = f"https://{_FOREIGN}"
    try:
        foreign = httpx.get(f"{api}/health", headers={"Origin": page})
        token = httpx.get(f"{api}/csrf-token", params={"client": "doctor"})
        rebound = httpx.get(f"{api}/health", headers={"Host": _FOREIGN})
    except httpx.HTTPError:
        return []  # `look_at_runs` reports that
    doors = (
        (
            foreign.headers.get("access-control-allow-origin") in {"*", page},
            *("lets every web page read its answers", "set PREFECT_SERVER_CORS_ALLOWED_ORIGINS to its own"),
        ),
        (
            token.status_code == httpx.codes.UNPROCESSABLE_ENTITY,
            *("accepts changes from every web page", "set PREFECT_SERVER_CSRF_PROTECTION_ENABLED=true"),
        ),
        (
            rebound.is_success,
            *("answers requests to any host name (DNS rebinding)", "use a proxy that checks Host"),
        ),
    )
    return [
        Finding(f"door {what}", f"the server {what}", fix, fails=False) for open_, what, fix in doors if open_
    ]


def _unscheduled(
    client: SyncPrefectClient, deployment: DeploymentResponse, now: datetime
) -> Iterator[Finding]:
    """Yield an active schedule without a future run, although the scheduler had time to create one.

    A rule with an end may have no date left, so it is not looked at.
    """
    active = [
        each
        for each in deployment.schedules
        if each.active
        and not (isinstance(each.schedule, RRuleSchedule) and {"UNTIL", "COUNT"} & _parts(each.schedule))
    ]
    changed = [each.updated for each in (deployment, *active) if each.updated is not None]
    if deployment.paused or not active or not changed or max(changed) > now - SCHEDULER_PATIENCE:
        return
    if not _scheduled(client, {"after_": now}, deployment.id):
        yield Finding(
            f"scheduler {deployment.id}",
            f"deployment {deployment.name}: an active schedule without a future run: the server's "
            "scheduler fails",
            "look for schedule_deployments in its log, and for incompatible packages",
        )


def _parts(schedule: RRuleSchedule) -> set[str]:
    return {part.partition("=")[0] for part in schedule.rrule.replace("RRULE:", "").split(";")}


def _late(
    client: SyncPrefectClient, deployments: dict[UUID, DeploymentResponse], now: datetime
) -> Iterator[Finding]:
    """Yield the runs that did not start in time, by deployment."""
    waiting = defaultdict[UUID, list[FlowRun]](list)
    for run in _scheduled(client, {"before_": now - LATE_PATIENCE}):
        if run.deployment_id in deployments and run.state_name in {"Late", "Scheduled"}:
            waiting[run.deployment_id].append(run)
    for identity, runs in waiting.items():
        deployment = deployments[identity]
        since = min(run.expected_start_time for run in runs if run.expected_start_time is not None)
        reason, fix, fails = _why_late(client, deployment.work_pool_name)
        what = (
            f"deployment {deployment.name}: {len(runs)} late, since {since:%Y-%m-%d %H:%M:%S} UTC: {reason}"
        )
        yield Finding(f"late {identity}", what, fix, fails)
    if any(run.state_name == "Scheduled" for runs in waiting.values() for run in runs):
        yield Finding(
            "late runs",
            "the server does not mark late runs: its loop monitor_late_runs fails",
            "look for it in the server's log, and start the server again",
        )


def _why_late(client: SyncPrefectClient, pool: str | None) -> tuple[str, str, bool]:
    """Return the cause, the fix, and whether it is a failure (a paused work pool is not)."""
    try:
        paused = pool is not None and client.read_work_pool(pool).is_paused
        workers = [] if pool is None else client.read_workers_for_work_pool(pool)
    except ObjectNotFound:
        pool = None
    if pool is None:
        return "its work pool does not exist, so no worker starts its runs", "register it again", True
    if paused:
        return f"its work pool {pool} is paused", "resume it in the UI", False
    if any(worker.status == WorkerStatus.ONLINE for worker in workers):
        what = f"a worker of {pool} is online but has not started them: it is at a limit, or busy"
        return what, "wait, or raise the limit", False
    fix = f"start one with `tokmill server work --pool {pool}`, or `tokmill up` in its folder"
    return f"no worker is online for its work pool {pool}", fix, True


def _scheduled(
    client: SyncPrefectClient, when: dict[str, datetime], deployment: UUID | None = None
) -> Sequence[FlowRun]:
    wanted = {"state": {"type": {"any_": ["SCHEDULED"]}}, "expected_start_time": when}
    if deployment is not None:
        wanted["deployment_id"] = {"any_": [deployment]}
    return client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(wanted), limit=_PAGE)
