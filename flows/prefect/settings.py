"""Prefect's settings for tokmill, which must be applied before Prefect is imported.

Variables that are already set in the environment are kept.
"""

import ipaddress
import os
import socket
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tokmill.flows.errors import ServeError, UsageError

# For every process: no telemetry.
PRIVATE = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}

# For a server that we start. By default every state of a task run is written in a transaction of its own,
# which is a third of what a run costs the server; now those of one second are written together.
SERVER = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}

# For a run in a terminal. On a busy machine the embedded server needs more than its default of 20 s to start.
# Prefect's logs go to its server, for the UI; the terminal has our own display.
TERMINAL = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


# Files of the current folder that Prefect takes settings from, and what in them may be one.
_CONFIGURING = {".env": "prefect", "prefect.toml": "", "pyproject.toml": "[tool.prefect"}


def prepare(settings: Mapping[str, str]) -> None:
    """Set variables that are not set yet; must be called before `import prefect`.

    Raises:
        ServeError: Prefect's home cannot be created or written to.
    """
    require_prefect_home()
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def prepare_terminal_run() -> None:
    """Set the environment for a run from the command line; must be called before `import prefect`.

    Raises:
        ServeError: Prefect's home cannot be created or written to.
    """
    prepare({**PRIVATE, **TERMINAL})


def may_have_a_server() -> bool:
    """Return whether Prefect may be configured for a server, without importing it."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    return _profile_has_url(Path(os.environ.get("PREFECT_PROFILES_PATH") or home / "profiles.toml")) or any(
        Path(name).is_file() and word in _text(Path(name)).lower() for name, word in _CONFIGURING.items()
    )


def has_a_server() -> bool:
    """Whether a server is configured; Prefect is imported only if one may be."""
    if not may_have_a_server():
        return False
    prepare_terminal_run()
    from prefect.client.base import ServerType, determine_server_type  # noqa: PLC0415 - see above

    return determine_server_type() not in {ServerType.EPHEMERAL, ServerType.UNCONFIGURED}


def _profile_has_url(file: Path) -> bool:
    """Return whether the active one of Prefect's profiles names a server."""
    named = os.environ.get("PREFECT_PROFILE")
    try:
        known = tomllib.loads(_text(file))
        active = known.get("profiles", {}).get(named or known.get("active"))
        found = named not in {None, "ephemeral"} if active is None else "PREFECT_API_URL" in active
    except (AttributeError, TypeError, ValueError):  # Prefect will say what is wrong with it
        return True
    return found


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


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


LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def own_names(host: str, port: int, more: Sequence[str] = ()) -> list[str]:
    """Return the names of the server that listens on `host` and `port`, and `more`, such as a proxy's.

    Of more names, one without a port is accepted with and without `port`.

    Raises:
        UsageError: a further name is not a host name.
    """
    names = [host_in_url(host)]
    if _is_any(host):
        names += _of_this_machine()
    if _is_any(host) or _is_loopback(host):
        names += LOOPBACK
    with_port = [f"{name}:{port}" for name in names]
    return list(dict.fromkeys([*with_port, *_given(more, port)]))


def host_in_url(host: str) -> str:
    """Return a host as in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def reachable(host: str) -> str:
    """Return a host for requests from this machine to a server that listens on `host`."""
    if not _is_any(host):
        return host_in_url(host)
    return "[::1]" if ":" in host else "127.0.0.1"


def _of_this_machine() -> Iterable[str]:
    """The machine's name and its addresses."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None)
    except OSError:  # the name has no address, as in many containers
        found = []
    return [name, socket.getfqdn(), *(host_in_url(str(address[4][0])) for address in found)]


def _given(names: Iterable[str], port: int) -> Iterable[str]:
    for name in names:
        if not name or any(letter in name for letter in "/,@ ") or "*" in name:
            raise UsageError(
                f"up: --allow-host {name!r} is not a host name; use e.g. gpu7.example.org, or gpu7:8443"
            )
        yield name
        if ":" not in name.rpartition("]")[2]:
            yield f"{name}:{port}"


def _is_any(host: str) -> bool:
    return _address_is(host, "is_unspecified")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or _address_is(host, "is_loopback")


def _address_is(host: str, what: str) -> bool:
    try:
        return bool(getattr(ipaddress.ip_address(host.strip("[]")), what))
    except ValueError:
        return False
