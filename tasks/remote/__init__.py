"""Objects by URL: listing, ranges, conditional writes and transfers, on any service that fsspec knows.

This package imports fsspec only once a URL is used. What is local (paths, `file://`) does not come here.
"""

from tokmill.tasks.remote.faults import ChangedError, UnreachableError
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
from tokmill.tasks.remote.urls import check_url, is_url, joined, without_secrets

__all__ = [
    "ChangedError",
    "Info",
    "UnreachableError",
    "check_url",
    "create",
    "download",
    "is_url",
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
