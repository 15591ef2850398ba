"""`tokmill up`: runs a Prefect server and a worker, and registers the deployments of this folder.

When interrupted, it stops the worker and its runs, then the server. The server's history is in Prefect's home
(`PREFECT_HOME`), artifacts are in the store, and logs of server and worker in `<store>/.up`. The server
listens on one address, by default 127.0.0.1, and answers no web page but its own (`flows.server.guard`). Its
failures are printed.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tokmill.flows.errors import ServeError
from tokmill.flows.profile.served import SERVED
from tokmill.flows.server.app import protection
from tokmill.flows.server.children import Child, child, interruptible
from tokmill.flows.server.findings import Finding, look_at_packages
from tokmill.flows.server.pages import PAGES, PREFIX
from tokmill.flows.server.served_folder import Registration, ServedFolder, lock_store
from tokmill.flows.server.settings import (
    PRIVATE,
    SERVER,
    host_in_url,
    own_names,
    prepare_terminal_run,
    reachable,
)
from tokmill.tasks.store.layout import url_of

SERVER_START_SECONDS = 120
LOOK_SECONDS = 0.5
DOCTOR_SECONDS = 60
_SCHEDULER = "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS"

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
    environment = _environment(address, served, logs, any_profile)
    with lock_store(served, address.url, logs), interruptible() as stopped, ExitStack() as children:
        _require_free(address)
        announce("starting the Prefect server …")
        server = children.enter_context(child("server", _server(address), environment, logs))
        _wait_until_healthy(server, f"{address.url}/api/health", stopped)
        if stopped.is_set():
            return
        registration = Registration(served, environment, any_profile, announce)
        registration.register()
        command = ["worker", "start", "--pool", served.work_pool, "--type", "process"]
        work = ["tokmill.flows.server.worker", str(served.store), *command]
        worker = children.enter_context(child("worker", work, environment, logs))
        announce(
            f"up: {address.seen_url}/v2/deployments · deployments {served.name} · "
            f"store {url_of(store) or store} · Ctrl-C stops it"
        )
        watch = Watch(f"{address.url}/api", announce)
        _serve([server, worker], (watch.look, registration.look), stopped)
        announce("stopping …")


def _server(address: Address) -> list[str]:
    served = ["--factory", "tokmill.flows.server.app:create_app", "--lifespan", "on", "--no-server-header"]
    return ["uvicorn", *served, "--host", address.host, "--port", str(address.port)]


def _environment(address: Address, served: ServedFolder, logs: Path, any_profile: bool) -> dict[str, str]:
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


def _serve(children: Sequence[Child], looks: Sequence[Callable[[], None]], stopped: threading.Event) -> None:
    while not stopped.wait(LOOK_SECONDS):
        for running in children:
            running.require_running()
        for look in looks:
            look()


class Watch:
    """Prints each problem once."""

    def __init__(self, api: str, announce: Callable[[str], None]) -> None:
        """Start monitoring.

        Args:
            api: URL of the server's API.
            announce: called with each line, from several threads.
        """
        self._api = api
        self._announce = announce
        self._next_doctor = time.monotonic() + DOCTOR_SECONDS
        self._doctor = threading.Thread()
        self._known: set[str] = set()
        self._report(look_at_packages())

    def look(self) -> None:
        """Diagnose the server once per minute."""
        if time.monotonic() >= self._next_doctor and not self._doctor.is_alive():
            self._next_doctor = time.monotonic() + DOCTOR_SECONDS
            # In a thread, because requests to a busy server are retried, and Ctrl-C must not wait for that.
            self._doctor = threading.Thread(target=self._look_at_runs, name="doctor", daemon=True)
            self._doctor.start()

    def _look_at_runs(self) -> None:
        prepare_terminal_run()
        from tokmill.flows.server.doctor import look_at_runs  # noqa: PLC0415 - imports Prefect, which takes seconds

        self._report(look_at_runs(self._api))

    def _report(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.key not in self._known:
                self._known.add(finding.key)
                self._announce(finding.text)
