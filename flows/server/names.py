"""The names that a server answers to.

A name is what stands in `Host`: with a port, unless a proxy before the server listens on its scheme's own. An
address cannot be pointed elsewhere by anybody's name server, a name can; so of names only those are taken
that this machine has by itself, or that its owner says.
"""

import ipaddress
import socket
from collections.abc import Iterable, Sequence

from tokmill.flows.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def own_names(host: str, port: int, more: Sequence[str] = ()) -> list[str]:
    """Return what the server on `host` and `port` is called.

    Args:
        host: the address that it listens on; 0.0.0.0 and :: are all of the machine's.
        port: its TCP port.
        more: further names, such as a proxy's; with a port where browsers show one, else both ways.

    Raises:
        UsageError: one of them is no host.
    """
    names = [host_in_url(host)]
    if _is_any(host):
        names += _of_this_machine()
    if _is_any(host) or _is_loopback(host):
        names += LOOPBACK
    with_port = [f"{name}:{port}" for name in names]
    return list(dict.fromkeys([*with_port, *_said(more, port)]))


def host_in_url(host: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def reachable(host: str) -> str:
    """Return the host under which this machine reaches a server that listens on `host`."""
    if not _is_any(host):
        return host_in_url(host)
    return "[::1]" if ":" in host else "127.0.0.1"


def _of_this_machine() -> Iterable[str]:
    """The machine's name and the addresses that it leads to."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None)
    except OSError:  # a name that leads nowhere, as in many containers
        found = []
    return [name, socket.getfqdn(), *(host_in_url(str(address[4][0])) for address in found)]


def _said(names: Iterable[str], port: int) -> Iterable[str]:
    for name in names:
        if not name or any(letter in name for letter in "/,@ ") or "*" in name:
            raise UsageError(f"up: --allow-host {name!r} is no host; use e.g. gpu7.example.org, or gpu7:8443")
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
