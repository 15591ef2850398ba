"""The names of a server, as in the header `Host`.

A name has a port, unless a proxy in front of the server uses the scheme's default port. DNS can point any
name at this machine, so only its own names and addresses and those given by its owner are accepted.
"""

import ipaddress
import socket
from collections.abc import Iterable, Sequence

from tokmill.flows.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def own_names(host: str, port: int, more: Sequence[str] = ()) -> list[str]:
    """Return the names of the server that listens on `host` and `port`.

    Args:
        host: its address; 0.0.0.0 and :: are all addresses of the machine.
        port: its TCP port.
        more: further names, such as a proxy's; one without a port is accepted with and without `port`.

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
