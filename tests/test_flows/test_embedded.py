"""An embedded server that does not start, or is killed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.small_disk import on_small_disk
from tests.test_flows.commands import clean_environment
from tests.test_flows.processes import processes_with
from tests.test_flows.served import POLL
from tokmill.flows.errors import ServeError
from tokmill.flows.prefect.server import start_embedded

STARTING = """
import os
from pathlib import Path
from tokmill.flows.prefect.server import start_embedded
start_embedded(os.environ, Path(os.environ["PREFECT_HOME"]), 300.0, print)
"""


@pytest.mark.slow
@pytest.mark.server
def test_a_server_without_room_says_why_and_what_helps(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = on_small_disk(home, "256k", f"{sys.executable} -c '{STARTING}'")
    environment = clean_environment(PREFECT_HOME=str(home))

    done = subprocess.run(
        command, env=environment, cwd=Path.cwd(), capture_output=True, text=True, check=False
    )

    *_, message = done.stderr.partition("flows.errors.ServeError: ")
    assert done.returncode == 1
    assert "did not start (it ended with exit code 3)" in message
    assert "database or disk is full" in message
    assert f"its database is in {home}" in message
    assert "set PREFECT_HOME to a folder on another disk" in message


def test_a_server_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    environment = clean_environment(PREFECT_HOME=str(tmp_path / "home"))

    with pytest.raises(ServeError, match="PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"):
        start_embedded(environment, tmp_path, 0.01, print)

    assert not processes_with("PREFECT_HOME", str(tmp_path / "home"))


@pytest.mark.slow
@pytest.mark.server
def test_a_server_that_is_killed_is_replaced_at_its_address(migrated_home: Path, tmp_path: Path) -> None:
    home = shutil.copytree(migrated_home, tmp_path / "home")
    notes: list[str] = []
    server = start_embedded(clean_environment(PREFECT_HOME=str(home)), home, 120.0, notes.append)
    try:
        (killed,) = processes_with("PREFECT_HOME", str(home))
        os.kill(killed, signal.SIGKILL)
        until = time.monotonic() + 120
        while not notes or not answers(server.url):
            assert time.monotonic() < until, "no other server answers"
            POLL.wait(0.1)
    finally:
        server.stop()

    assert notes == ["Prefect's embedded server has ended (exit code -9); another one is started"]
    assert not processes_with("PREFECT_HOME", str(home))


def answers(url: str) -> bool:
    """Whether a server answers at an address."""
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.HTTPError:
        return False
