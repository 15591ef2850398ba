"""Operations on objects by URL, each tried again as `tasks.remote.faults` says.

A write whose answer is lost may have taken place. Writing the same bytes again does no harm; `create` and
`exchange` look whether the object holds exactly the bytes that they were to write, which counts as done.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tokmill.tasks.remote.faults import ChangedError, persevering
from tokmill.tasks.remote.services import Info, Service, service_of

RANGE_BYTES = 16 << 20
_RANGES_AT_ONCE = 4


def stat(url: str) -> Info:
    """Return what the service says about an object.

    Raises:
        FileNotFoundError: there is none.
        PermissionError, UnreachableError, OSError: as `tasks.remote.faults` says; so for all of this module.
    """
    service = service_of(url)
    return persevering(lambda: service.head(url), url)


def listed(folder: str, *, recursive: bool = True) -> Iterator[Info]:
    """Yield what is below the URL of a folder, page by page; nothing if there is no such folder.

    Args:
        folder: with or without a slash at its end.
        recursive: yield all objects; otherwise objects and folders one step below.
    """
    for page in service_of(folder).pages(folder, recursive=recursive):
        yield from page


def read(url: str, most_bytes: int) -> bytes:
    """Return an object's bytes; raises OSError if it has more than `most_bytes`."""
    data = read_range(url, 0, None)
    if len(data) > most_bytes:
        raise OSError(errno.EINVAL, f"has more than {most_bytes} bytes", url)
    return data


def read_range(url: str, start: int, end: int | None, etag: str = "") -> bytes:
    """Return the bytes [start, end) of an object; to its end if `end` is None.

    Raises:
        ChangedError: its ETag is not `etag`, if that is given.
    """
    service = service_of(url)
    return persevering(lambda: service.get(url, start, end, etag)[0], url)


def write(url: str, data: bytes) -> str:
    """Write an object, and return its ETag."""
    service = service_of(url)
    return persevering(lambda: service.put(url, data), url)


def create(url: str, data: bytes) -> str:
    """Write an object that does not exist, and return its ETag; with these very bytes, it may exist.

    Raises:
        FileExistsError: it exists with others.
    """
    service = service_of(url)
    try:
        return persevering(lambda: service.create(url, data), url)
    except (ChangedError, FileExistsError) as error:
        etag = _held(service, url, data)
        if etag is not None:
            return etag
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), url) from error


def exchange(url: str, data: bytes, etag: str) -> str:
    """Write an object in place of the one with `etag`, and return the new ETag.

    Raises:
        ChangedError: it is another one by now, or gone.
    """
    service = service_of(url)
    try:
        return persevering(lambda: service.exchange(url, data, etag), url)
    except FileNotFoundError as error:
        raise ChangedError(errno.ESTALE, "the object is gone", url) from error
    except ChangedError:
        held = _held(service, url, data)
        if held is not None:
            return held
        raise


def upload(path: Path, url: str) -> None:
    """Write a local file of any size as an object."""
    service_of(url).upload(path, url)


def download(url: str, path: Path, num_bytes: int) -> None:
    """Write an object of a known size to a new local file, in ranges that are each tried again.

    Raises:
        ChangedError: the object was replaced meanwhile, or has another size.
    """
    service = service_of(url)
    if not 0 < num_bytes <= RANGE_BYTES and stat(url).num_bytes != num_bytes:  # before it fills the disk
        raise ChangedError(errno.ESTALE, f"the object does not have {num_bytes} bytes", url)
    first, etag = persevering(lambda: service.get(url, 0, min(num_bytes, RANGE_BYTES) or None, ""), url)
    with path.open("xb") as file:
        file.write(first)
        file.truncate(num_bytes)

    def fetch(start: int) -> None:
        end = min(start + RANGE_BYTES, num_bytes)
        data = persevering(lambda: service.get(url, start, end, etag)[0], url)
        with path.open("r+b") as file:
            file.seek(start)
            file.write(data)

    starts = range(RANGE_BYTES, num_bytes, RANGE_BYTES)
    if starts:
        with ThreadPoolExecutor(_RANGES_AT_ONCE) as threads:
            list(threads.map(fetch, starts))


def copy(source: str, target: str) -> None:
    """Copy an object within one service."""
    service = service_of(source)
    persevering(lambda: service.copy(source, target), source)


def remove(urls: Iterable[str]) -> None:
    """Delete objects, in this order; none need exist."""
    for url in urls:
        persevering(partial(service_of(url).remove, url), url)


def _held(service: Service, url: str, data: bytes) -> str | None:
    """Return the ETag of an object if it holds exactly `data`."""
    try:
        found, etag = persevering(lambda: service.get(url, 0, None, ""), url)
        return (etag or service.head(url).etag) if found == data else None
    except FileNotFoundError:
        return None
