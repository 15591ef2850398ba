"""What must be settled before Prefect is imported: its settings for tokmill, its home, and a server's names.

Variables that are already set in the environment are kept.
"""

import ipaddress
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tokmill.flows.errors import ServeError, UsageError

HOSTS: Final = "TOKMILL_SERVER_HOSTS"
"""Environment variable of a server: its names with ports, separated by commas."""
PAGES: Final = "TOKMILL_PAGES"
"""Environment variable of `tokmill up` and its worker: the URL below which reports are."""
REPORTS: Final = "/tokmill/report"
HOW, USER = "tokmill.started_by", "tokmill.user"
"""Labels of a flow run."""

# For every process: no telemetry.
PRIVATE: Final = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}

# For a server that we start. By default every state of a task run is written in a transaction of its own,
# which is a third of what a run costs the server; now those of one second are written together.
SERVER: Final = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}

# For a run in a terminal. On a busy machine the embedded server needs more than its default of 20 s to start.
# Prefect's logs go to its server, for the UI; the terminal has our own display.
_TERMINAL: Final = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}

# Files that Prefect takes settings from, and what in them may name a server.
_CONFIGURING: Final = {".env": "prefect", "prefect.toml": "", "pyproject.toml": "[tool.prefect"}
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


def protection(names: Sequence[str]) -> dict[str, str]:
    """Return the environment variables of a server with these names, and of its clients.

    With Prefect's defaults, any web page can read the server's answers and make changes without a token.
    """
    return {
        HOSTS: ",".join(names),
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": ",".join(origins(names)),
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
        "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true",
    }


def origins(hosts: Iterable[str]) -> list[str]:
    """Return the origins of pages from these hosts, in order; https too, for a proxy with TLS."""
    return [f"{scheme}://{host}" for host in sorted(hosts) for scheme in ("http", "https")]


def prepare(settings: Mapping[str, str]) -> None:
    """Set variables that are not set yet; must be called before `import prefect`.

    Raises:
        ServeError: Prefect's home cannot be created or written to.
    """
    require_prefect_home()
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def prepare_terminal_run() -> None:
    """Set the environment for a run from the command line; see `prepare`."""
    prepare({**PRIVATE, **_TERMINAL})


def may_have_a_server() -> bool:
    """Return whether Prefect may be configured for a server, without importing it."""
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")
    words = {profiles: "prefect_api_url", **{Path(name): word for name, word in _CONFIGURING.items()}}
    return bool(os.environ.get("PREFECT_API_URL") or os.environ.get("PREFECT_PROFILE")) or any(
        path.is_file() and os.access(path, os.R_OK) and word in path.read_text("utf-8", "replace").lower()
        for path, word in words.items()
    )


def has_a_server() -> bool:
    """Whether a server is configured; Prefect is imported only if one may be."""
    if not may_have_a_server():
        return False
    prepare_terminal_run()
    from prefect.client.base import ServerType, determine_server_type  # noqa: PLC0415 - takes a second

    return determine_server_type() not in {ServerType.EPHEMERAL, ServerType.UNCONFIGURED}


def require_prefect_home() -> None:
    """Create Prefect's home; without it Prefect warns at every import and then hangs.

    Raises:
        ServeError: it cannot be created or written to.
    """
    named = os.environ.get("PREFECT_HOME") or "~/.prefect"
    try:
        home = Path(named).expanduser()
        home.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(home, os.W_OK | os.X_OK) else "no write permission"
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ has no home folder
        problem = str(error)
    if problem:
        raise ServeError(
            f"Prefect cannot use its folder {named} ({problem}); set PREFECT_HOME to a writable folder"
        )


@dataclass(frozen=True)
class Address:
    """The address and the names of a server.

    Attributes:
        host: IP address or host name; 0.0.0.0 and :: are all addresses of the machine.
        port: TCP port; must be free.
        more: further names of the server, such as a proxy's.
    """

    host: str = "127.0.0.1"
    port: int = 4200
    more: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The accepted values of the header `Host`; one of `more` without a port with and without it.

        Raises:
            UsageError: a further name is not a host name.
        """
        names = [_in_url(self.host)]
        if self._is("is_unspecified"):
            names += _names_of_this_machine()
        if self.host == "localhost" or self._is("is_unspecified") or self._is("is_loopback"):
            names += _LOOPBACK
        with_port = [f"{name}:{self.port}" for name in names]
        for name in self.more:
            if not name or any(letter in name for letter in "/,@ *"):
                raise UsageError(
                    f"up: --allow-host {name!r} is not a host name; use e.g. gpu7.example.org, or gpu7:8443"
                )
            with_port += [name] if ":" in name.rpartition("]")[2] else [name, f"{name}:{self.port}"]
        return list(dict.fromkeys(with_port))

    @property
    def url(self) -> str:
        """The URL for requests from this machine."""
        loopback = "[::1]" if ":" in self.host else "127.0.0.1"
        return f"http://{loopback if self._is('is_unspecified') else _in_url(self.host)}:{self.port}"

    @property
    def seen_url(self) -> str:
        """The URL for browsers."""
        return f"http://{self.more[0]}" if self.more else self.url

    def _is(self, what: str) -> bool:
        try:
            return bool(getattr(ipaddress.ip_address(self.host.strip("[]")), what))
        except ValueError:  # a name
            return False


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _names_of_this_machine() -> list[str]:
    name = socket.gethostname()
    try:
        addresses = socket.getaddrinfo(name, None)
    except OSError:  # the name has no address, as in many containers
        addresses = []
    return [name, socket.getfqdn(), *(_in_url(str(address[4][0])) for address in addresses)]
