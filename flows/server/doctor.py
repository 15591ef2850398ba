"""A look at a Prefect server from outside: whether what is scheduled starts, and whom the server answers.

A server whose scheduler fails looks healthy: the page is there, the API answers, only the runs never come. So
the look asks for what a working server must have made by now, and says what is missing with its likely cause.
It works on any Prefect server, and changes nothing there.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
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
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from tokmill.flows.server.findings import Finding

# A scheduler works once a minute, and late runs are marked some seconds after their time.
SCHEDULER_PATIENCE = timedelta(seconds=150)
LATE_PATIENCE = timedelta(seconds=60)
HEALTH_SECONDS = 10
_PAGE = 200
_FOREIGN = "page.invalid"  # a name that nobody has, by RFC 2606
_UNANSWERED = (httpx.HTTPError, PrefectHTTPStatusError)


def look_at_runs(api: str, moment: datetime | None = None) -> list[Finding]:
    """Return what is wrong with scheduled runs at a server; nothing if nothing is.

    Args:
        api: URL of the server's API.
        moment: what is late, and what is to come, is as of then; now if not given.
    """
    try:
        # Asked before the client, which would ask a server that is not there again and again.
        httpx.get(f"{api}/health", timeout=HEALTH_SECONDS).raise_for_status()
        with SyncPrefectClient(api) as client:
            deployments = list(_deployments(client))
            now = moment or datetime.now(UTC)
            return [
                *(found for each in deployments for found in _unscheduled(client, each, now)),
                *_late(client, {each.id: each for each in deployments}, now),
            ]
    except _UNANSWERED as error:
        return [Finding("server", f"no Prefect server answers at {api}: {error}")]


def look_at_doors(api: str) -> list[Finding]:
    """Return whom the server answers and should not; nothing if it keeps to its own page."""
    found = []
    try:
        foreign = httpx.get(f"{api}/health", headers={"Origin": f"https://{_FOREIGN}"})
        if foreign.headers.get("access-control-allow-origin") in {"*", f"https://{_FOREIGN}"}:
            found.append(
                "lets every web page read its answers: set PREFECT_SERVER_CORS_ALLOWED_ORIGINS to its own"
            )
        token = httpx.get(f"{api}/csrf-token", params={"client": "doctor"})
        if token.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            found.append("takes changes from every web page: set PREFECT_SERVER_CSRF_PROTECTION_ENABLED=true")
        if httpx.get(f"{api}/health", headers={"Host": _FOREIGN}).is_success:
            found.append("answers to every name (DNS rebinding): put a proxy before it that checks Host")
    except httpx.HTTPError:
        return []  # that it does not answer is said by the other look
    return [Finding(f"door {number}", f"the server {text}", fails=False) for number, text in enumerate(found)]


def _deployments(client: SyncPrefectClient) -> Iterator[DeploymentResponse]:
    offset = 0
    while page := client.read_deployments(limit=_PAGE, offset=offset):
        yield from page
        offset += len(page)


def _unscheduled(
    client: SyncPrefectClient, deployment: DeploymentResponse, now: datetime
) -> Iterator[Finding]:
    """An active schedule without a run to come, though the scheduler has had time to make one."""
    active = [schedule for schedule in deployment.schedules if schedule.active and _goes_on(schedule)]
    if deployment.paused or not active:
        return
    changed = [moment for each in (deployment, *active) if (moment := each.updated) is not None]
    if not changed or max(changed) > now - SCHEDULER_PATIENCE:
        return
    if not _scheduled(client, FlowRunFilterExpectedStartTime(after_=now), deployment.id, limit=1):
        yield Finding(
            f"scheduler {deployment.id}",
            f"deployment {deployment.name}: an active schedule and no run to come: the server's scheduler "
            "fails; look for schedule_deployments in its log, and for packages that it does not work with",
        )


def _late(
    client: SyncPrefectClient, deployments: dict[UUID, DeploymentResponse], now: datetime
) -> Iterator[Finding]:
    """Runs whose time has passed without a start, by deployment."""
    waiting: dict[UUID, list[FlowRun]] = {}
    for run in _scheduled(client, FlowRunFilterExpectedStartTime(before_=now - LATE_PATIENCE)):
        if run.deployment_id in deployments and run.state_name in {"Late", "Scheduled"}:
            waiting.setdefault(run.deployment_id, []).append(run)
    for identity, runs in waiting.items():
        deployment = deployments[identity]
        since = min(run.expected_start_time for run in runs if run.expected_start_time is not None)
        reason, fails = _why_late(client, deployment)
        yield Finding(
            f"late {identity}",
            f"deployment {deployment.name}: {len(runs)} late, since {since:%Y-%m-%d %H:%M:%S} UTC: {reason}",
            fails,
        )
    if any(run.state_name == "Scheduled" for runs in waiting.values() for run in runs):
        yield Finding("late runs", "the server does not mark late runs: its loop monitor_late_runs fails")


def _why_late(client: SyncPrefectClient, deployment: DeploymentResponse) -> tuple[str, bool]:
    """Return a cause, and whether it is a fault and not somebody's wish."""
    pool = deployment.work_pool_name
    if pool is None:
        return "it is in no work pool, so that no worker takes its runs; register it anew", True
    try:
        paused = client.read_work_pool(pool).is_paused
        workers = client.read_workers_for_work_pool(pool)
    except ObjectNotFound:
        return f"its work pool {pool} is gone; register it anew", True
    if paused:
        return f"its work pool {pool} is paused", False
    if any(worker.status == WorkerStatus.ONLINE for worker in workers):
        return f"a worker of {pool} is there and has not taken them: limits, or other runs, hold it up", False
    return (
        f"no worker is online for its work pool {pool}; start one with `prefect worker start --pool {pool}`, "
        "or `tokmill up` where it was",
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
    """Whether there is always another date; a rule with an end may have come to it."""
    rule = schedule.schedule
    return not (isinstance(rule, RRuleSchedule) and any(end in rule.rrule for end in ("UNTIL", "COUNT")))
