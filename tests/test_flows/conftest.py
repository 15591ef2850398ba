"""A real Prefect server for the whole session.

Runs are made in processes of their own (`tests.test_flows.forking`), against one server that is started
once: it costs some seconds, and every run then one or two.
"""

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.test_flows.commands import InThisProcess, Tokmill, clean_environment, free_port
from tests.test_flows.corpora import write_project
from tests.test_flows.forking import start_fork_server
from tests.test_flows.served import Service, wait_for_line
from tokmill.flows.prefect.app import make_database

SERVER_SECONDS = 180


@pytest.fixture(scope="session")
def migrated_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home of Prefect with an empty database, to be copied; made once per session."""
    home = tmp_path_factory.mktemp("prefect")
    make_database(f"sqlite+aiosqlite:///{home / 'prefect.db'}")
    return home


@pytest.fixture(scope="session")
def prefect_server(migrated_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start a Prefect server with its own home; yields the environment variables for its clients."""
    home, port = shutil.copytree(migrated_home, tmp_path_factory.mktemp("server") / "home"), free_port()
    api = f"http://127.0.0.1:{port}/api"
    environment = clean_environment(
        PREFECT_HOME=str(home), PREFECT_API_URL=api, PREFECT_SERVER_UI_API_URL=api
    )
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until_healthy(f"{api}/health", server, home / "server.log")
        start_fork_server(environment)
        yield environment
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_healthy(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the server answers; fail with its log if it ends or takes too long."""
    until = time.monotonic() + SERVER_SECONDS
    while time.monotonic() < until and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.2)  # polling without a pause would take a core from the starting server
    pytest.fail(f"the Prefect server did not start:\n{log.read_text()}")


@pytest.fixture
def tokmill(tmp_path: Path) -> Tokmill:
    """The command line in an empty folder, in this process and without Prefect."""
    return InThisProcess(tmp_path, clean_environment())


@pytest.fixture(scope="session")
def finished_project(tmp_path_factory: pytest.TempPathFactory) -> Tokmill:
    """A project after one run; made once for a session, and not to be changed."""
    tokmill = InThisProcess(tmp_path_factory.mktemp("project"), clean_environment())
    tokmill.run(write_project(tokmill.folder))
    return tokmill


@pytest.fixture
def project(finished_project: Tokmill, tmp_path: Path) -> Tokmill:
    """A copy of the finished project, with modification times."""
    shutil.copytree(finished_project.folder, tmp_path / "project", symlinks=True)
    return finished_project.at(tmp_path / "project")


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Tokmill:
    """A store with two packings of the smoke profile; not to be changed."""
    tokmill = InThisProcess(tmp_path_factory.mktemp("smoke"), clean_environment())
    tokmill.run("smoke")
    tokmill.run("smoke", "--set", "pack.sequence_length=64")
    return tokmill


@pytest.fixture
def copied(smoke: Tokmill, tmp_path: Path) -> Tokmill:
    """A copy of that store, which a test may change."""
    shutil.copytree(smoke.store, tmp_path / "store")
    return smoke.at(tmp_path)


@pytest.fixture
def on_prefect(prefect_server: dict[str, str], tmp_path: Path) -> Tokmill:
    """The command line in an empty folder, with the session's server."""
    return Tokmill(tmp_path, prefect_server, forks=True)


@pytest.fixture(scope="session")
def service(migrated_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A project that `tokmill up` serves, on a port and with a Prefect home of its own.

    Afterwards a signal must stop it, its worker and its server.
    """
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    write_project(folder, num_documents=120)
    home = shutil.copytree(migrated_home, tmp_path_factory.mktemp("service") / "home")
    tokmill = Tokmill(folder, clean_environment(PREFECT_HOME=str(home), PYTHONUNBUFFERED="1"))
    process = tokmill.start("up", "--port", str(port))
    try:
        wait_for_line(process, "up: ")
        yield Service(process, tokmill, f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.communicate(timeout=120)
    assert process.returncode == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
