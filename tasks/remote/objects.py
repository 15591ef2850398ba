"""Operations on objects by URL, each tried again as `tasks.remote.faults` says.

A write whose answer is lost may have taken place. Writing the same bytes again does no harm; `create` looks
whether the object holds exactly the bytes that it was to write, which counts as done.
"""

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.remote.faults import ChangedError, persevering
from tokmill.tasks.remote.location import Location
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


_MAX_BYTES = 16 << 30  # of a model with its tokenizer


def files_at(url: str) -> list[Info]:
    """Return the object at a URL, or those directly below it, sorted.

    Raises:
        SourceError: there is neither, or access is refused.
        MachineError: the service cannot be reached, or goes on failing.
    """
    try:
        return [stat(url)]
    except FileNotFoundError:
        pass
    except OSError as error:
        raise unreadable(url, error) from error
    try:
        below = listed(url.rstrip("/"), recursive=False)
        found = sorted((one for one in below if not one.is_folder), key=lambda one: one.url)
    except OSError as error:
        raise unreadable(url, error) from error
    files = [one for one in found if not one.url.endswith("/")]
    if not files:
        raise SourceError(f"{url} cannot be read (there is no such object); correct the URL")
    return files


@contextmanager
def fetched(location: Location) -> Iterator[Path]:
    """Yield a path to a file or folder: its own if it is local, else that of a copy, deleted afterwards.

    Raises:
        SourceError: there is no such object, access is refused, or the files are too large for a tokenizer's.
        MachineError: the service cannot be reached, or goes on failing.
    """
    if isinstance(location, Path):
        yield location
        return
    files = files_at(location.url)
    if sum(file.num_bytes for file in files) > _MAX_BYTES:
        raise SourceError(
            f"{location} holds more than {_MAX_BYTES >> 30} GiB; name the tokenizer's file itself"
        )
    with tempfile.TemporaryDirectory(prefix="tokmill-fetched-") as folder:
        for file in files:
            try:
                download(file.url, Path(folder, file.url.rpartition("/")[2]), file.num_bytes)
            except OSError as error:
                raise unreadable(file.url, error) from error
        yield Path(folder, location.name) if files[0].url == location.url else Path(folder)
