"""`tokmill up`: runs a Prefect server and a worker, and registers the deployments of this folder.

When interrupted, it stops the worker and its runs, then the server. The server's history is in Prefect's home
(`PREFECT_HOME`), artifacts are in the store, and logs of server and worker in `<store>/.up`. The server
listens on one address, by default 127.0.0.1, and answers no web page but its own (`flows.prefect.guard`). Its
failures are printed.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from tokmill.flows.doctor.report import Finding, Part, look_at_packages
from tokmill.flows.errors import ServeError, UsageError
from tokmill.flows.prefect.app import PAGES, PREFIX, protection
from tokmill.flows.prefect.settings import (
    PRIVATE,
    SERVER,
    host_in_url,
    may_have_a_server,
    own_names,
    prepare_terminal_run,
    reachable,
)
from tokmill.flows.process import Child, child, interruptible
from tokmill.flows.profile.served import SERVED, ServedFolder, served_profiles
from tokmill.flows.run.machine import open_store
from tokmill.tasks.store.layout import url_of

SERVER_START_SECONDS = 120
LOOK_SECONDS = 0.5
PROFILES_SECONDS = 2.0
DOCTOR_SECONDS = 60
_SCHEDULER = "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS"
_FILE, _LOCK = "up.json", "lock"

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Address:
    """The address and the names of the server.

    Attributes:
        host: IP address or host name; 0.0.0.0 and :: are all addresses of the machine.
        port: TCP port; must be free.
        more: further names of the server.
    """

    host: str = "127.0.0.1"
    port: int = 4200
    more: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The accepted values of the header `Host`."""
        return own_names(self.host, self.port, self.more)

    @property
    def url(self) -> str:
        """The URL for requests from this machine."""
        return f"http://{reachable(self.host)}:{self.port}"

    @property
    def seen_url(self) -> str:
        """The URL for browsers."""
        return f"http://{self.more[0]}" if self.more else self.url


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
    if password := os.environ.get("PREFECT_SERVER_API_AUTH_STRING"):
        os.environ["PREFECT_API_AUTH_STRING"] = password  # of our own server
    environment = _environment(address, served, any_profile)
    application = ["--factory", "tokmill.flows.prefect.app:create_app", "--lifespan", "on"]
    where = ["--host", address.host, "--port", str(address.port), "--no-server-header"]
    work = ["tokmill.flows.prefect.worker", str(served.store), "worker", "start", "--type", "process"]
    with lock_store(served, address.url, logs), interruptible() as stopped, ExitStack() as children:
        _require_free(address)
        announce("starting the Prefect server …")
        server = children.enter_context(child("server", ["uvicorn", *application, *where], environment, logs))
        _wait_until_healthy(server, f"{address.url}/api/health", stopped)
        if stopped.is_set():
            return
        seen = _files(served)
        _register(served, environment, any_profile, announce)
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
        due = time.monotonic() + PROFILES_SECONDS
        while not stopped.wait(LOOK_SECONDS):
            server.require_running()
            worker.require_running()
            if time.monotonic() >= due:
                before, seen, due = seen, _files(served), time.monotonic() + PROFILES_SECONDS
                _register_changed(served, environment, any_profile, announce, before, seen)
        announce("stopping …")


def _environment(address: Address, served: ServedFolder, any_profile: bool) -> dict[str, str]:
    """Return the environment of server and worker."""
    return {
        **SERVER,
        **os.environ,
        **PRIVATE,
        **protection(address.names),
        "PREFECT_API_URL": f"{address.url}/api",
        "PREFECT_SERVER_UI_API_URL": f"{address.seen_url}/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # By default the worker looks for runs every ten seconds, and the scheduler works once per minute:
        # too slow for a person who starts a run in the UI.
        "PREFECT_WORKER_QUERY_SECONDS": os.environ.get("PREFECT_WORKER_QUERY_SECONDS", "2"),
        _SCHEDULER: os.environ.get(_SCHEDULER, "10"),
        "TOKMILL_STORE": str(served.store),
        SERVED: "" if any_profile else str(served.folder),
        PAGES: f"{address.seen_url}{PREFIX}",
    }


def _require_free(address: Address) -> None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host.strip("[]"), address.port))
        except OSError as error:
            reason = error.strerror or error
            raise ServeError(
                f"up: cannot listen on {host_in_url(address.host)}:{address.port} ({reason}); stop the "
                "program that uses it, or choose another --port"
            ) from error


def _wait_until_healthy(server: Child, health: str, stopped: threading.Event) -> None:
    import httpx  # noqa: PLC0415 - comes with Prefect, and no other command needs it

    with httpx.Client(timeout=1) as client:
        for _ in range(SERVER_START_SECONDS * 4):
            if stopped.wait(0.25):
                return
            server.require_running()
            try:
                if client.get(health).is_success:
                    return
            except httpx.HTTPError:
                continue
    raise ServeError(f"the Prefect server did not answer within {SERVER_START_SECONDS} s; see {server.log}")


def _register(
    served: ServedFolder, environment: Mapping[str, str], any_profile: bool, announce: Announce
) -> None:
    """Register the deployments, in a process of its own, which imports Prefect.

    Raises:
        ServeError: the server or Prefect refuses them.
    """
    module = ["tokmill.flows.prefect.registration", str(served.folder), str(served.store)]
    # -P prevents imports from the working directory
    command = [sys.executable, "-P", "-m", *module, *(["--any-profile"] if any_profile else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise ServeError(f"the deployments of {served.name!r} could not be registered: {output}")
    for line in done.stdout.splitlines():
        announce(line)


_Files = dict[str, tuple[int, int]]


def _register_changed(
    served: ServedFolder,
    environment: Mapping[str, str],
    any_profile: bool,
    announce: Announce,
    before: _Files,
    now: _Files,
) -> None:
    """Register the deployments again if a profile has changed."""
    changed = sorted(name for name in now.keys() | before if now.get(name) != before.get(name))
    if changed:
        try:
            _register(served, environment, any_profile, announce)
        except ServeError as error:
            announce(str(error))
        else:
            announce(f"registered again: {', '.join(changed)}")


def _files(served: ServedFolder) -> _Files:
    """Return the time and the size of each profile's file."""
    found: _Files = {}
    for profile in served_profiles(served.folder):
        try:
            status = profile.path.stat()
        except OSError:  # removed a moment ago
            continue
        found[profile.given] = (status.st_mtime_ns, status.st_size)
    return found


def _watch(api: str, announce: Announce, stopped: threading.Event) -> None:
    """Print each problem of the packages, and of the server once per minute, but none twice."""
    known: set[str] = set()

    def report(findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.key not in known:
                known.add(finding.key)
                announce(finding.text)

    report(look_at_packages())
    while not stopped.wait(DOCTOR_SECONDS):
        prepare_terminal_run()
        from tokmill.flows.prefect.doctor import look_at_runs  # noqa: PLC0415 - imports Prefect, which takes seconds

        report(look_at_runs(api))


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
    part = Part("server")
    try:
        store = open_store(location)
    except UsageError:  # the store's own part says that
        store = None
    store = None if store is None or not store.root.is_dir() else store
    serves = None if store is None else last_served(store.root / ".up")
    if serves is None and not may_have_a_server():
        part.facts["api"] = "none is configured; each run brings its own, and `tokmill up` starts one"
        part.figures["api"] = None
        return part
    prepare_terminal_run()
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - takes a second

    from tokmill.flows.prefect.doctor import look_at_dead, look_at_doors, look_at_runs  # noqa: PLC0415 - likewise

    api = (PREFECT_API_URL.value() or (f"{serves.url}/api" if serves else "")).rstrip("/") or None
    part.figures["api"] = api
    part.facts["api"] = api or "none is configured"
    if api is None:
        return part
    dead, freed = look_at_dead(api, store, free=free)
    part.figures["freed"] = freed
    part.facts |= {"freed": ", ".join(freed)} if freed else {}
    part.findings = [*dead, *look_at_runs(api), *look_at_doors(api)]
    return part
