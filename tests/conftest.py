"""What every test may use: the shared data, and a quiet machine.

Tests marked `shared_data` use real corpora and published vocabularies that are not part of the project. They
are looked for in `$TOKMILL_SHARED_DATA`, else in `../shared/data` beside the checkout, and the test skips,
saying so, where they are absent.
"""

import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.object_server import bucket, object_server
from tests.other_services import other_bucket, other_services
from tokmill.tokenizer.jit import make_ready
from tokmill.tokenizer.jit.kernel import jit_disabled
from tokmill.tokenizer.preparing import kernel_modules

__all__ = ["bucket", "object_server", "other_bucket", "other_services"]  # fixtures for every folder

CHECKOUT = Path(__file__).resolve().parent.parent

# Processes with a home of their own would otherwise compile every kernel again, which takes a minute.
KERNEL_CACHE = "TOKMILL_KERNEL_CACHE"
os.environ.setdefault(
    KERNEL_CACHE,
    str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tokmill" / "kernels"),
)

# Shared machines are slow at times: a deadline would test the machine. Derandomised in CI, so that a red run
# is a change's fault; random at home, so that new examples are found.
settings.register_profile("home", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("home"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "home")

MOST_MEMORY = 12 << 30  # bytes of a process: what runs away fails where it does

OF_FIXTURES = {"migrated_home": "server", "object_server": "objects", "other_services": "objects"}
"""Fixtures that start a server, and the mark of tests that use one, so that none does without it."""


def shared_data_folder() -> Path:
    """Return where the shared data would be; it need not exist."""
    return Path(os.environ.get("TOKMILL_SHARED_DATA", CHECKOUT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout that is tested."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of the shared data; only for tests marked `shared_data`."""
    return shared_data_folder()


def pytest_configure(config: pytest.Config) -> None:
    """Have SIGINT interrupt, memory end, and files written without waiting for the disk.

    A shell has what it starts in the background, as `nohup` does, ignore SIGINT; so would all processes that
    tests start, and those that wait to be interrupted would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    os.fsync = lambda descriptor: None  # no test cuts the power, and each run would wait for a disk 400 times


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have the processes of a session compile the kernels together, before one waits for another's.

    One begins at the first module and the other at the last, and they meet where as much is left for either.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None and not jit_disabled():
        modules = list(kernel_modules())
        for module in modules if worker == "gw0" else reversed(modules):
            make_ready([module])


@pytest.hookimpl(tryfirst=True)  # before marks select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server, and skip, visibly, what needs data that is not there."""
    for item in items:
        for fixture in OF_FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(OF_FIXTURES[fixture])
    folder = shared_data_folder()
    if folder.is_dir():
        return
    absent = pytest.mark.skip(reason=f"no shared data at {folder}; set TOKMILL_SHARED_DATA")
    for item in items:
        if item.get_closest_marker("shared_data"):
            item.add_marker(absent)
