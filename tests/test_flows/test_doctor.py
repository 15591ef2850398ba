"""`tokmill doctor` on a server with Prefect's defaults: runs that do not start, and access."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.test_flows.commands import Tokmill
from tests.test_flows.served import POLL
from tokmill.flows.prefect.server import no_answer

pytestmark = pytest.mark.server

LOOK = """
import json, sys
from datetime import datetime
from tokmill.flows.prefect.doctor import look_at_runs
found = look_at_runs(sys.argv[1], datetime.fromisoformat(sys.argv[2]))
print(json.dumps([finding.text for finding in found]))
"""


@pytest.fixture
def tokmill(on_prefect: Tokmill) -> Tokmill:
    """The command line with the session's server."""
    return on_prefect


@pytest.fixture
def api(prefect_server: dict[str, str]) -> Iterator[httpx.Client]:
    """The API of a server with Prefect's defaults."""
    with httpx.Client(base_url=prefect_server["PREFECT_API_URL"], timeout=30) as client:
        yield client


@pytest.fixture
def deployment(api: httpx.Client) -> Iterator[str]:
    """A deployment `nightly` in a work pool without a worker; yields its id."""
    pool = {"name": "lonely", "type": "process", "base_job_template": {}}
    asked(api, "POST", "/work_pools/", pool)
    flow = asked(api, "POST", "/flows/", {"name": "theirs"})["id"]
    new = {"name": "nightly", "flow_id": flow, "work_pool_name": "lonely", "entrypoint": "theirs.py:flow"}
    made = asked(api, "POST", "/deployments/", new)["id"]
    yield made
    asked(api, "DELETE", f"/flows/{flow}")
    asked(api, "DELETE", "/work_pools/lonely")


def asked(api: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    """Return the answer of the API, asked again while the server's database is locked for a moment."""
    for _ in range(40):
        answer = api.request(method, path, json=body)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            answer.raise_for_status()
            return answer.json() if answer.content else None
        POLL.wait(0.5)
    return pytest.fail(f"{path}: the server stayed unavailable")


def test_runs_that_nobody_takes_and_open_doors_are_named(
    tokmill: Tokmill, api: httpx.Client, deployment: str
) -> None:
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": past}}
    asked(api, "POST", f"/deployments/{deployment}/create_flow_run", {"state": state})

    told = tokmill("doctor", "--json")

    assert told.code == 1
    findings = json.loads(told.out)["findings"]
    (late,) = [each["text"] for each in findings if each["text"].startswith("deployment nightly: 1 late")]
    assert "no worker is online for its work pool lonely" in late
    notes = " ".join(each["text"] for each in findings if not each["fails"])
    assert "PREFECT_SERVER_CORS_ALLOWED_ORIGINS" in notes
    assert "PREFECT_SERVER_CSRF_PROTECTION_ENABLED" in notes
    assert "DNS rebinding" in notes


def test_an_active_schedule_without_a_run_to_come_is_named(
    prefect_server: dict[str, str], api: httpx.Client, deployment: str
) -> None:
    daily = [{"schedule": {"cron": "0 3 * * *"}, "active": True}]
    asked(api, "POST", f"/deployments/{deployment}/schedules", daily)

    now = datetime.now(UTC)
    at_once, years_on = (look(prefect_server, moment) for moment in (now, now + timedelta(days=2000)))

    # At once the scheduler need not have worked yet; in 2,000 days none of its runs is in the future.
    assert not any("scheduler" in text for text in at_once)
    assert any(text.startswith("deployment nightly: an active schedule") for text in years_on)


def look(environment: dict[str, str], moment: datetime) -> list[str]:
    """Return the problems of runs at a given time."""
    command = [sys.executable, "-c", LOOK, environment["PREFECT_API_URL"], moment.isoformat()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_a_refused_password_is_said_to_be_one() -> None:
    api = "http://127.0.0.1:4200/api"
    answer = httpx.Response(401, request=httpx.Request("GET", api))
    refused = httpx.HTTPStatusError("401", request=answer.request, response=answer)

    what, fix = no_answer(api, refused)

    assert "not allowed" in what
    assert "check PREFECT_API_AUTH_STRING" in fix
    assert "no Prefect server answers" in no_answer(api, httpx.ConnectError("refused"))[0]


def test_a_server_that_is_not_there_is_named(tokmill: Tokmill) -> None:
    told = tokmill("doctor", PREFECT_API_URL="http://127.0.0.1:9/api")

    assert told.code == 1
    assert "no Prefect server answers at http://127.0.0.1:9/api" in told.out
