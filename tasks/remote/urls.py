"""URLs of objects: `scheme://bucket/key`.

A URL names a place and nothing else. Credentials come from the environment, so a URL with a password in it is
refused before it can reach a record, a log or a message.
"""

import re

from tokmill.tasks.core.errors import RemoteError

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>.*)", re.DOTALL)
_WITH_SECRETS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/@]*@")
_LOCAL = frozenset({"file", "local"})


def is_url(text: str) -> bool:
    """Whether `text` is the URL of something that is not a local file."""
    found = _URL.fullmatch(text)
    return found is not None and found["scheme"].lower() not in _LOCAL


def scheme_of(url: str) -> str:
    """Return the scheme of a URL in lower case, e.g. `s3`."""
    found = _URL.fullmatch(url)
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
    found = _URL.fullmatch(url)
    if found is None or not found["rest"].strip("/"):
        raise RemoteError(f"{url!r} names no bucket; use e.g. s3://bucket/folder")


def without_secrets(url: str) -> str:
    """Return a URL as it may be shown: without user and password."""
    return _WITH_SECRETS.sub(lambda found: f"{found['scheme']}…@", url)


def joined(url: str, path: str) -> str:
    """Return the URL of `path`, given with slashes, below `url`."""
    return f"{url.rstrip('/')}/{path}"
