"""Mirrors: the local folders that stand for stores on object storage.

    <cache>/tokmill/mirrors/<digest of the URL>/    a store's folder, with the layout of any other store
    <cache>/tokmill/mirrors/<digest>/.url           its URL

The cache is `$TOKMILL_CACHE`, else `$XDG_CACHE_HOME`, else `~/.cache`. A mirror may be deleted while no
process uses it: that costs the time to fetch again. Two caches on one machine are to each other as two
machines.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tokmill.tasks.core.errors import RemoteError, StoreError

MARK: Final = "/tokmill/mirrors/"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_URL_FILE = ".url"
_DIGEST_CHARS = 16
_URLS: dict[str, str] = {}  # by mirror


def mirrors_home() -> Path:
    """Return the folder of all mirrors."""
    cache = os.environ.get("TOKMILL_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "tokmill" / "mirrors"


def mirror_of(url: str) -> Path:
    """Return the mirror of the store at `url`, which is made if there is none.

    Raises:
        StoreError: the URL holds a password, a query or nothing, its library is not installed, or the folder
            cannot be written.
    """
    from tokmill.tasks.remote import check_url, require, without_secrets

    clean = url.rstrip("/")
    try:
        check_url(clean)
        require(clean)
    except RemoteError as error:
        raise StoreError(f"store {error}") from error
    if "?" in clean or "#" in clean:
        shown = without_secrets(clean).partition("?")[0].partition("#")[0]
        raise StoreError(
            f"store {shown}: a store's URL has no query or fragment; settings and credentials come from the "
            "environment"
        )
    root = mirrors_home() / hashlib.sha256(clean.encode("utf-8")).hexdigest()[:_DIGEST_CHARS]
    if not (root / _URL_FILE).is_file():
        _begin(root, clean)
    return root


def local_root(location: str) -> Path:
    """Return the folder of the store at a path or URL: the path itself, or the URL's mirror.

    Raises:
        StoreError: as `mirror_of`; the URL of a file names a host; or a path is of an unknown user.
    """
    scheme = _SCHEME.match(location)
    if scheme is None:
        try:
            return Path(location).expanduser()
        except RuntimeError as error:
            raise StoreError(f"store {location}: {error} Write the path in full") from error
    try:
        url = urlsplit(location)
    except ValueError as error:
        raise StoreError(f"store {location!r} is not a URL: {error}") from error
    if scheme[1].lower() not in ("file", "local"):
        return mirror_of(location)
    if url.netloc not in ("", "localhost"):
        raise StoreError(f"store {location!r}: a file's URL names no host; use file:///path")
    return Path(unquote(url.path))


def _begin(root: Path, url: str) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = root / f"{_URL_FILE}.{os.getpid()}"
        temporary.write_text(f"{url}\n", encoding="utf-8")
        temporary.replace(root / _URL_FILE)
    except OSError as error:
        raise StoreError(
            f"store {url}: its local cache {root} cannot be written ({error.strerror}); name another folder "
            "with TOKMILL_CACHE"
        ) from error


def root_in(path: str) -> str | None:
    """Return the mirror that a path leads into, or None."""
    before, mark, after = path.partition(MARK)
    digest = after.partition("/")[0]
    return f"{before}{mark}{digest}" if len(digest) == _DIGEST_CHARS else None


def _url(root: str) -> str | None:
    with suppress(OSError):
        if root not in _URLS:
            _URLS[root] = (Path(root) / _URL_FILE).read_text(encoding="utf-8").strip()
    return _URLS.get(root)


def url_of(path: Path | str) -> str | None:
    """Return the URL of the store whose mirror a path leads into; None if it leads into none."""
    if MARK not in str(path):
        return None
    root = root_in(str(path))
    return _url(root) if root else None
