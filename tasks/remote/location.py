"""Where a file is: a path on this machine, or the URL of an object, `s3://bucket/key`, not percent-encoded.

Credentials come from the environment: a URL with a password in it is refused before it can reach a record, a
log or a message.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tokmill.tasks.core.errors import RemoteError, SourceError

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
# An absolute path, or one that begins with `~` or a placeholder such as `{stdlib}`.
_WITHOUT_FOLDER = re.compile(r"[/~]|\{[A-Za-z_]+\}(?:/|\Z)")
_FILE = "file://"
_PARTS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_WITH_SECRETS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/@]*@")


@dataclass(frozen=True)
class Info:
    """What a service says about an object, or about a folder in a listing that is not recursive."""

    url: str  # where it is
    num_bytes: int = 0  # its size
    etag: str = ""  # changes with the content; empty if the service has none
    modified_ns: int = 0  # time of the last change, in nanoseconds since 1970; 0 if unknown
    is_folder: bool = False  # whether it is only the common beginning of longer keys

    @property
    def tag(self) -> str:
        """A hint that changes when the object does: its ETag and time; empty if the service has none."""
        has_tag = self.etag and self.etag != f"{self.num_bytes}-0"
        return f"{self.etag} {self.modified_ns}" if has_tag else ""


@dataclass(frozen=True, order=True)
class RemoteFile:
    """An object in a bucket, or a file of a web server, by its URL."""

    url: str

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.url.rpartition("/")[2]

    def __str__(self) -> str:
        return self.url


Location: TypeAlias = Path | RemoteFile


def is_url(text: str) -> bool:
    """Whether a text begins with a scheme, such as `s3://`."""
    return _URL.match(text) is not None


def stands_alone(text: str) -> bool:
    """Whether a pattern does not start from the folder of its profile."""
    return is_url(text) or _WITHOUT_FOLDER.match(text) is not None


def is_remote(text: str) -> bool:
    """Whether a text is a URL of something that is not a file of this machine."""
    return is_url(text) and not text.lower().startswith(_FILE)


def local_path(text: str) -> Path:
    """Return the path that a text names: a path, or a `file://` URL."""
    return Path(text[len(_FILE) :] if text.lower().startswith(_FILE) else text)


def located(text: str | Path) -> Location:
    """Return the location that a text names: a path, or a URL."""
    given = str(text)
    return RemoteFile(given) if is_remote(given) else local_path(given)


def below(root: str | Path, name: str) -> Location:
    """Return the file with a name that is relative to a root, which is a folder or a URL.

    Raises:
        SourceError: the name leads out of the root, which no name of a corpus that was ingested does.
    """
    if name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise SourceError(f"{name[:100]!r} leads out of {root}: no tokmill wrote the corpus that lists it")
    given = str(root)
    return RemoteFile(f"{given.rstrip('/')}/{name}") if is_remote(given) else local_path(given) / name


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case, e.g. `s3`."""
    found = _PARTS.fullmatch(url)
    if found is None:
        raise RemoteError(f"{without_secrets(url)!r} is not a URL; use e.g. s3://bucket/folder")
    return found["scheme"].lower()


def check_url(url: str) -> None:
    """Reject a URL that holds a user or password, or names no bucket.

    Raises:
        RemoteError: why, and what to do; the message shows no secret.
    """
    if _WITH_SECRETS.match(url):
        raise RemoteError(
            f"{without_secrets(url)}: the URL holds a user name or password; put credentials into the "
            "environment (for s3://: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE), where no "
            "record or log shows them"
        )
    found = _PARTS.fullmatch(url)
    if found is None or not found["rest"].strip("/"):
        raise RemoteError(f"{url!r} names no bucket; use e.g. s3://bucket/folder")


def without_secrets(url: str) -> str:
    """Return a URL as it may be shown: without user and password."""
    return _WITH_SECRETS.sub(lambda found: f"{found['scheme']}…@", url)


def joined(url: str, path: str) -> str:
    """Return the URL of `path`, given with slashes, below `url`."""
    return f"{url.rstrip('/')}/{path}"
