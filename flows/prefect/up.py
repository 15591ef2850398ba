"""`tokmill up`: runs a Prefect server and a worker, and registers the deployments of this folder.

When interrupted, it stops the worker and its runs, then the server. The server's history is in Prefect's home
(`PREFECT_HOME`), artifacts are in the store, and logs of server and worker in `<store>/.up`.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from tokmill.flows.doctor.report import Part, look_at_packages
from tokmill.flows.errors import ServeError, UsageError
from tokmill.flows.prefect.server import server_module, wait_until_healthy
from tokmill.flows.prefect.settings import (
    PAGES,
    PRIVATE,
    REPORTS,
    SERVER,
    Address,
    may_have_a_server,
    prepare_terminal_run,
    protection,
)
from tokmill.flows.process import child, interruptible
from tokmill.flows.profile.served import SERVED, ServedFolder, served_profiles
from tokmill.flows.run.machine import open_store
from tokmill.tasks.store.layout import url_of

SERVER_START_SECONDS: Final = 120
LOOK_SECONDS: Final = 2.0
DOCTOR_SECONDS: Final = 60
_FILE, _LOCK = "up.json", "lock"

Announce = Callable[[str], None]


def up(store: Path, address: Address, *, any_profile: bool = False, announce: Announce = print) -> None:
    """Serve the working directory until interrupted.

    Args:
        store: the folder for artifacts of runs that do not name another.
        address: address of the server.
        any_profile: whether a run may name a profile outside the working directory.
        announce: called with each line about the started services and about failures.

    Raises:
        ServeError: the port is in use, the store is already served, or the server, the worker or the
            registration failed.
        UsageError: a name of the server is not a host name.
    """
    served, logs = ServedFolder.of(Path.cwd(), url_of(store) or store), store.absolute() / ".up"
    environment = _environment(address, served, any_profile)
    work = ["tokmill.flows.prefect.worker", str(served.store), "worker", "start", "--type", "process"]
    with lock_store(served, address.url, logs), interruptible() as stopped, ExitStack() as children:
        _require_free(address)
        announce("starting the Prefect server …")
        module = server_module(address.host, address.port, "--no-server-header")
        server = children.enter_context(child("server", module, environment, logs))
        os.environ.update(environment)
        prepare_terminal_run()
        seen = _files(served)
        import_module("tokmill.flows.prefect.registration")  # and Prefect, while the server starts
        wait_until_healthy(server, address.url, SERVER_START_SECONDS, stopped)
        if stopped.is_set():
            return
        _register(served, any_profile, announce)
        worker = children.enter_context(
            child("worker", [*work, "--pool", served.work_pool], environment, logs)
        )
        announce(
            f"up: {address.seen_url}/v2/deployments · deployments {served.name} · "
            f"store {url_of(store) or store} · Ctrl-C stops it"
        )
        # In a thread, because requests to a busy server are retried, and Ctrl-C must not wait for that.
        watching = (f"{address.url}/api", announce, stopped)
        threading.Thread(target=_watch, args=watching, name="doctor", daemon=True).start()
        while not stopped.wait(LOOK_SECONDS):
            server.require_running()
            worker.require_running()
            before, seen = seen, _files(served)
            changed = sorted(name for name in seen.keys() | before if seen.get(name) != before.get(name))
            if changed:
                try:
                    _register(served, any_profile, announce)
                    announce(f"registered again: {', '.join(changed)}")
                except ServeError as error:
                    announce(str(error))
        announce("stopping …")


def _environment(address: Address, served: ServedFolder, any_profile: bool) -> dict[str, str]:
    """Return the environment of server and worker."""
    password = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")
    return {
        **SERVER,
        # By default the worker looks for runs every ten seconds, and the scheduler works once per minute:
        # too slow for a person who starts a run in the UI.
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "10",
        **os.environ,
        **({"PREFECT_API_AUTH_STRING": password} if password else {}),  # of our own server
        **PRIVATE,
        **protection(address.names),
        "PREFECT_API_URL": f"{address.url}/api",
        "PREFECT_SERVER_UI_API_URL": f"{address.seen_url}/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "TOKMILL_STORE": str(served.store),
        SERVED: "" if any_profile else str(served.folder),
        PAGES: f"{address.seen_url}{REPORTS}",
    }


def _require_free(address: Address) -> None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host.strip("[]"), address.port))
        except OSError as error:
            raise ServeError(
                f"up: cannot listen on {address.host}:{address.port} ({error.strerror or error}); stop the "
                "program that uses it, or choose another --port"
            ) from error


_Files = dict[str, tuple[int, int]]


def _files(served: ServedFolder) -> _Files:
    """Return the time and the size of each profile's file."""
    files: _Files = {}
    for profile in served_profiles(served.folder):
        try:
            status = profile.path.stat()
        except OSError:  # removed a moment ago
            continue
        files[profile.given] = (status.st_mtime_ns, status.st_size)
    return files


def _register(served: ServedFolder, any_profile: bool, announce: Announce) -> None:
    """Register the deployments.

    Raises:
        ServeError: the server or Prefect refuses them.
    """
    from tokmill.flows.prefect.registration import register  # noqa: PLC0415 - see `up`

    try:
        register(served, announce, any_profile=any_profile, here=True)
    except Exception as error:
        raise ServeError(f"the deployments of {served.name!r} could not be registered: {error}") from error


def _watch(api: str, announce: Announce, stopped: threading.Event) -> None:
    """Print each problem of the packages, and of the server once per minute, but none twice."""
    from tokmill.flows.prefect.doctor import look_at_runs  # noqa: PLC0415 - see `up`

    known, findings = set[str](), look_at_packages()
    while True:
        for finding in findings:
            if finding.key not in known:
                known.add(finding.key)
                announce(finding.text)
        if stopped.wait(DOCTOR_SECONDS):
            return
        findings = look_at_runs(api)


@dataclass(frozen=True)
class Serving:
    """A running or past `tokmill up`: URL of its server, folder, name of its deployment, process id."""

    url: str
    folder: str
    deployment: str
    pid: int


@contextmanager
def lock_store(served: ServedFolder, url: str, logs: Path) -> Iterator[None]:
    """Hold the lock of a store during the block.

    Raises:
        ServeError: another process holds it; the message has its URL, folder and process id.
    """
    logs.mkdir(parents=True, exist_ok=True)
    lock = FileLock(logs / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        other = last_served(logs)
        where = f"from {other.folder} at {other.url} (process {other.pid})" if other else "by another process"
        raise ServeError(
            f"up: the store {served.store} is already served {where}; use or stop that one, or serve another "
            "--store"
        ) from error
    own = Serving(url, str(served.folder), served.name, os.getpid())
    try:
        (logs / _FILE).write_text(json.dumps(asdict(own)), encoding="utf-8")
        yield
    finally:
        (logs / _FILE).unlink(missing_ok=True)
        lock.release()


def last_served(logs: Path) -> Serving | None:
    """Return the current or last `tokmill up`, or None if there is no readable file."""
    try:
        return Serving(**json.loads((logs / _FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def look_at_server(location: str, *, free: bool = False) -> Part:
    """Return what is wrong with a store's server; `free` ends dead runs there, and removes dead workers."""
    part = Part(
        "server", facts={"api": "none is configured; each run brings its own, and `tokmill up` starts one"}
    )
    part.figures["api"] = None
    try:
        store = open_store(location)
    except UsageError:  # the store's own part says that
        store = None
    store = None if store is None or not store.root.is_dir() else store
    serves = None if store is None else last_served(store.root / ".up")
    if serves is None and not may_have_a_server():
        return part
    prepare_terminal_run()
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - takes a second

    from tokmill.flows.prefect.doctor import look_at_dead, look_at_doors, look_at_runs  # noqa: PLC0415 - likewise

    api = (PREFECT_API_URL.value() or (f"{serves.url}/api" if serves else "")).rstrip("/")
    if not api:
        return part
    dead, freed = look_at_dead(api, store, free=free)
    part.figures |= {"api": api, "freed": freed}
    part.facts |= {"api": api} | ({"freed": ", ".join(freed)} if freed else {})
    part.findings = [*dead, *look_at_runs(api), *look_at_doors(api)]
    return part
