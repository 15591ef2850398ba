"""The services behind URLs, each with the few operations that everything else is made of.

One file system object of fsspec per process and scheme is made on first use, for all threads. It gets nothing
but timeouts from here: credentials, endpoints and regions are what its library finds in the
environment. `tasks.remote.faults` tries again, for the operations that say so from within.
"""

import functools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from tokmill.tasks.core.errors import RemoteError
from tokmill.tasks.remote.location import check_url, scheme_of

_EXTRAS = {
    "s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs",
    "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure",
}  # fmt: skip
_LIBRARIES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs"}  # by extra
_S3 = frozenset({"s3", "s3a"})


@dataclass(frozen=True)
class Info:
    """What a service says about an object, or about a folder in a listing that is not recursive.

    Attributes:
        url: where it is.
        num_bytes: its size.
        etag: changes with the content; empty if the service has none.
        version: of a bucket with versions; empty otherwise.
        modified_ns: time of the last change, in nanoseconds since 1970; 0 if unknown.
        is_folder: whether it is only the common beginning of longer keys.
    """

    url: str
    num_bytes: int = 0
    etag: str = ""
    version: str = ""
    modified_ns: int = 0
    is_folder: bool = False


class Service(Protocol):
    """One attempt at each operation; faults are those of the service's library."""

    def check(self, url: str) -> None:
        """Raise RemoteError for a name that the service's library takes for another."""
        ...

    def head(self, url: str) -> Info:
        """Return what is known of an object."""
        ...

    def pages(self, folder: str, *, recursive: bool) -> Iterator[list[Info]]:
        """Yield what is below a folder, page by page; tries again by itself."""
        ...

    def get(self, url: str, start: int, end: int | None, etag: str) -> tuple[bytes, str]:
        """Return the bytes [start, end) of an object, and its ETag; `etag`, if given, must be its own."""
        ...

    def put(self, url: str, data: bytes) -> str:
        """Write an object, and return its ETag."""
        ...

    def create(self, url: str, data: bytes) -> str:
        """Write an object that does not exist; FileExistsError, or status 412, if it does."""
        ...

    def upload(self, path: Path, url: str) -> None:
        """Write a local file of any size; tries again by itself."""
        ...

    def remove(self, url: str) -> None:
        """Delete an object; none need exist."""
        ...


def require(url: str) -> None:
    """Raise RemoteError unless the library for a URL's service is installed; imports none that is known."""
    scheme = scheme_of(url)
    module = _LIBRARIES.get(_EXTRAS.get(scheme, ""))
    if module is None:
        service_of(url)
    elif sys.modules.get(module, module) is None or find_spec(module) is None:
        raise RemoteError(_missing(scheme, ImportError(module)))


def service_of(url: str) -> Service:
    """Return the service of a URL.

    Raises:
        RemoteError: the URL holds a password, its scheme is unknown, or its library is not installed, or
            cannot reach this name.
    """
    check_url(url)
    service = _service(scheme_of(url), os.getpid())
    service.check(url)
    return service


@functools.lru_cache(maxsize=32)
def _service(scheme: str, process: int) -> Service:
    """One for each process, since a fork must not share connections."""
    if scheme in _S3:
        from tokmill.tasks.remote.s3 import S3, connected

        return S3(_opened(scheme, connected))
    from tokmill.tasks.remote.plain import Plain, connected_to

    return Plain(scheme, _opened(scheme, functools.partial(connected_to, scheme)))


def reconnect() -> None:
    """Let the next use of each service look for credentials anew."""
    _service.cache_clear()


def _opened(scheme: str, connect: Any) -> Any:
    try:
        return connect()
    except (ImportError, TypeError, ValueError) as error:  # fsspec does not know the scheme, or needs a host
        raise RemoteError(_missing(scheme, error)) from error


def _missing(scheme: str, error: Exception) -> str:
    extra = _EXTRAS.get(scheme)
    if extra is not None:
        return f"{scheme}:// needs a library that is not installed; run: pip install 'tokmill[{extra}]'"
    known = ", ".join(f"{name}://" for name in ("s3", "gs", "az"))
    return f"{scheme}:// cannot be used ({error}); use a folder, {known}, or install its library for fsspec"
