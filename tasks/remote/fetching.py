"""Fetch a few small files to this machine for as long as they are needed: a tokenizer's, not text.

What is fetched is what was there before: whoever needs that has its digest.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.remote.location import Location
from tokmill.tasks.remote.objects import download, listed, stat
from tokmill.tasks.remote.services import Info

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
