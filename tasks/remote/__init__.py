"""Objects by URL: listing, ranges, conditional writes and transfers, on any service that fsspec knows.

This package imports fsspec only once a URL is used. What is local (paths, `file://`) does not come here.
"""

from tokmill.tasks.remote.faults import ChangedError, UnreachableError
from tokmill.tasks.remote.location import check_url, joined, without_secrets
from tokmill.tasks.remote.objects import (
    create,
    download,
    listed,
    read,
    read_range,
    remove,
    stat,
    upload,
    write,
)
from tokmill.tasks.remote.services import Info, reconnect, require

__all__ = [
    "ChangedError",
    "Info",
    "UnreachableError",
    "check_url",
    "create",
    "download",
    "joined",
    "listed",
    "read",
    "read_range",
    "reconnect",
    "remove",
    "require",
    "stat",
    "upload",
    "without_secrets",
    "write",
]
