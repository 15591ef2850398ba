"""What a part of a store on object storage held when it was last listed, and what this process did since.

One listing answers for many names, so that ten thousand artifacts cost ten requests and not ten thousand. It
may be stale by a few seconds, or by twenty times what it takes to list, whichever is more. So:

- a name that it has is taken to be there;
- a name that it does not have is asked for by itself, unless the listing is recent; `ask` always does so,
  for a name that somebody says is there;
- `distrust` makes every missing name be asked for: whoever holds an artifact's lock must not overlook it.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from tokmill.tasks import remote
from tokmill.tasks.core.errors import MachineError, RemoteError, StoreError
from tokmill.tasks.remote import Info, UnreachableError
from tokmill.tasks.store.durable import reported_as
from tokmill.tasks.store.names import broken_rule, shortened

_LOG = logging.getLogger(__name__)
_SAID = set[str]()
_FRESH_SECONDS = 10.0
_LISTINGS_PER_AGE = 20
_LONG_SECONDS = 1.0
_MOST_OF_A_SECOND = 999_999_999


class Names(Protocol):
    """What is known of the names below one URL."""

    def find(self, name: str) -> Info | None:
        """Return what is known of an object, or None if there is none."""
        ...

    def ask(self, name: str) -> Info | None:
        """Return what the service says of an object at this moment, or None if there is none."""
        ...

    def names(self, folder: str) -> dict[str, bool]:
        """Return the names one step below a folder, and whether each is a folder."""
        ...

    def below(self, folder: str) -> Iterator[str]:
        """Yield the names of all objects below a folder."""
        ...

    def changed(self, name: str, *, there: bool) -> None:
        """Take note that this process has written an object, or removed it."""
        ...


class Unlisted:
    """The names below one URL, where each answer must be of this moment."""

    def __init__(self, url: str) -> None:
        self._url = url

    def find(self, name: str) -> Info | None:
        """Ask the service."""
        return self.ask(name)

    def ask(self, name: str) -> Info | None:
        """Ask the service."""
        with suppress(FileNotFoundError), answering(self._url):
            return remote.stat(remote.joined(self._url, name))
        return None

    def names(self, folder: str) -> dict[str, bool]:
        """Ask the service."""
        url = remote.joined(self._url, folder)
        with reported_as(f"{url} cannot be listed"), answering(url):
            found = list(remote.listed(url, recursive=False))
        names = {info.url.rpartition("/")[2]: info.is_folder for info in found}
        return {name: names[name] for name in names if is_usable(name, url)}

    def below(self, folder: str) -> Iterator[str]:
        """Ask the service."""
        url = remote.joined(self._url, folder)
        with reported_as(f"{url} cannot be listed"), answering(url):
            names = (info.url[len(self._url) + 1 :] for info in remote.listed(url))
            yield from (name for name in names if is_usable(name, self._url))

    def changed(self, name: str, *, there: bool) -> None:
        """Do nothing: the service knows."""


class Listing:
    """The names below one URL; may be used by threads.

    Args:
        url: the folder that is listed.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.RLock()
        self._infos: dict[str, Info | None] = {}  # None: changed here, and not asked about yet
        self._below: dict[str, set[str]] = {}
        self._began = float("-inf")
        self._seconds = 0.0
        self._distrusted = float("-inf")
        self._changes: list[tuple[float, str, bool]] = []  # when, the name, and whether it is there

    def find(self, name: str) -> Info | None:
        """Return what is known of an object, or None if there is none."""
        with self._lock:
            self._refresh_if_old()
            if name not in self._infos and self._is_trusted():
                return None
            info = self._infos.get(name)
        return info or self.ask(name)

    def names(self, folder: str) -> dict[str, bool]:
        """Return the names one step below a folder, and whether each is a folder."""
        with self._lock:
            self._refresh_if_old()
            start = f"{folder}/" if folder else ""
            return {name: f"{start}{name}" in self._below for name in self._below.get(folder, ())}

    def below(self, folder: str) -> Iterator[str]:
        """Yield the names of all objects below a folder."""
        with self._lock:
            self._refresh_if_old()
            start = f"{folder}/" if folder else ""
            found = [name for name in self._infos if name.startswith(start)]
        yield from found

    def changed(self, name: str, *, there: bool) -> None:
        """Take note that this process has written an object, or removed it."""
        with self._lock:
            self._changes.append((time.monotonic(), name, there))
            self._note(self._infos, self._below, name, there)

    def distrust(self) -> None:
        """Ask for every name that a listing from before now does not have."""
        self._distrusted = time.monotonic()

    def refresh(self) -> None:
        """List anew; where that takes long, only if the last time is twenty times as long ago."""
        with self._lock:
            age = time.monotonic() - self._began
            if self._seconds < _LONG_SECONDS or age > self._seconds * _LISTINGS_PER_AGE:
                self._list()

    def ask(self, name: str) -> Info | None:
        """Ask the service, and take note of its answer."""
        try:
            with answering(self._url):
                info = remote.stat(remote.joined(self._url, name))
        except FileNotFoundError:
            self._forget(name)
            return None
        with self._lock:
            self._note(self._infos, self._below, name, there=True)
            self._infos[name] = info
        return info

    def _forget(self, name: str) -> None:
        with self._lock:
            if name in self._infos:
                self._note(self._infos, self._below, name, there=False)

    def _is_trusted(self) -> bool:
        age = time.monotonic() - self._began
        return self._began > self._distrusted and age < self._most_age()

    def _most_age(self) -> float:
        return max(_FRESH_SECONDS, _LISTINGS_PER_AGE * self._seconds)

    def _refresh_if_old(self) -> None:
        if time.monotonic() - self._began > self._most_age():
            self._list()

    def _list(self) -> None:
        began = time.monotonic()
        infos: dict[str, Info | None] = {}
        below: dict[str, set[str]] = defaultdict(set)
        start = len(self._url) + 1
        with reported_as(f"{self._url} cannot be listed"), answering(self._url):
            for info in remote.listed(self._url):
                name = info.url[start:]
                if not is_usable(name, self._url):
                    continue
                self._note(infos, below, name, there=True)
                infos[name] = info
        self._changes = [change for change in self._changes if change[0] >= began]
        for _, name, there in self._changes:
            self._note(infos, below, name, there)
        self._infos, self._below = infos, dict(below)
        self._began, self._seconds = began, time.monotonic() - began

    @staticmethod
    def _note(infos: dict[str, Info | None], below: dict[str, set[str]], name: str, there: bool) -> None:
        """Add a name, of which nothing more is known, or take it away, with folders that are empty then."""
        folder, _, last = name.rpartition("/")
        if there:
            infos[name] = None
            while last:
                below.setdefault(folder, set()).add(last)
                folder, _, last = folder.rpartition("/")
            return
        infos.pop(name, None)
        while last:
            siblings = below.get(folder, set())
            siblings.discard(last)
            if siblings:
                return
            below.pop(folder, None)
            folder, _, last = folder.rpartition("/")


@contextmanager
def answering(url: str) -> Iterator[None]:
    """Raise MachineError if the service does not answer: that says nothing about what it holds."""
    try:
        yield
    except UnreachableError as error:
        raise MachineError(f"{url} cannot be reached: {error.strerror}; run again when it can") from error
    except RemoteError as error:
        raise StoreError(f"store {url.rpartition('/')[0]}: {error}") from error


def is_usable(name: str, url: str) -> bool:
    """Whether a name below a URL can be that of a file in a mirror; says so once of those that cannot."""
    rule = broken_rule(name)
    if rule is not None and url not in _SAID:
        _SAID.add(url)
        _LOG.warning("%s: objects like %s are ignored: %s; no tokmill wrote it", url, shortened(name), rule)
    return rule is None


def stamp_of(info: Info) -> int:
    """Return a time in nanoseconds, alike on all machines, that tells contents of one second apart."""
    seconds = info.modified_ns // 1_000_000_000
    distinct = int.from_bytes(info.etag.encode("utf-8")[-8:], "big") % _MOST_OF_A_SECOND
    return seconds * 1_000_000_000 + distinct
