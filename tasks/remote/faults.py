"""Which faults pass, and are tried again with growing pauses until TOKMILL_RETRY_SECONDS (120) have gone by.

No answer, a cut connection, a timeout, 408, 409, 429 and 5xx pass; anything else is raised at once. All are
OSErrors, as those of local files are.
"""

import errno
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tokmill.tokenizer.core.stopping import raise_if_stopped

T = TypeVar("T")

RETRY_SECONDS: Final = "TOKMILL_RETRY_SECONDS"
_DEFAULT_SECONDS = 120.0
_QUIET_SECONDS = 1.0
_REPEATED_SECONDS = 30.0
_SAID: dict[str, float] = {}  # by bucket: until when nothing more is said
_LOCK = threading.Lock()
_LOG = logging.getLogger(__name__)
CHANGED = "the object is not in the expected state"
_NO_BUCKET = "the bucket does not exist; create it, or correct the name"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_PASSING_STATUS = frozenset({408, 409, 425, 429})
_PASSING_ERRNO = frozenset({
    errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH,
    errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.EPIPE, errno.EREMOTEIO, errno.ETIMEDOUT,
})  # fmt: skip
_PASSING_CODES = frozenset({
    "InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "ConditionalRequestConflict", "RequestTimeoutException",
})  # fmt: skip
# By name, since none of these libraries need be installed: of botocore, aiohttp, urllib3, fsspec and azure.
_PASSING_NAMES = frozenset({
    "ClientConnectionError", "ClientOSError", "ClientPayloadError", "ConnectTimeoutError",
    "ConnectionClosedError", "ConnectionError", "EndpointConnectionError", "FSTimeoutError",
    "HTTPClientError", "IncompleteRead", "IncompleteReadError", "ProxyConnectionError",
    "ReadTimeoutError", "ResponseParserError",
    "ResponseStreamingError", "ServerDisconnectedError", "ServerTimeoutError", "ServiceRequestError",
    "ServiceResponseError",
})  # fmt: skip
_NO_CREDENTIALS = frozenset({
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
    "TokenRetrievalError", "DefaultCredentialsError", "ClientAuthenticationError",
})  # fmt: skip


class UnreachableError(OSError):
    """A service gave no proper answer for as long as it was asked."""


class ChangedError(OSError):
    """An object is not, or no longer, in the state that was asked for."""


def persevering(work: Callable[[], T], url: str) -> T:
    """Return what `work` returns, which is called again as long as its faults are passing ones.

    Args:
        work: may be called several times.
        url: what it is about, for messages.

    Raises:
        FileNotFoundError, PermissionError, FileExistsError, ChangedError, OSError: a fault that stays.
        UnreachableError: one that passes, but did not for TOKMILL_RETRY_SECONDS.
        StopRequested: the run is being stopped.
    """
    began, longest = time.monotonic(), _FIRST_PAUSE
    until = began + _seconds()
    while True:
        pause = longest * random.uniform(0.5, 1.0)  # noqa: S311 - so that clients do not come back together
        try:
            return work()
        except Exception as error:
            fault = _translated(error, url)
            if fault is None:
                raise
            if not isinstance(fault, UnreachableError) or time.monotonic() + pause > until:
                raise fault from error
            _warn(fault, url, began, until)
        raise_if_stopped()
        time.sleep(pause)
        longest = min(2 * longest, _LONGEST_PAUSE)


def _warn(fault: OSError, url: str, began: float, until: float) -> None:
    """Say why nothing happens, once it has been so for a second, unless it was said just now."""
    now, place = time.monotonic(), "/".join(url.split("/", 3)[:3])
    with _LOCK:
        if now < max(began + _QUIET_SECONDS, _SAID.get(place, 0.0)):
            return
        _SAID[place] = now + _REPEATED_SECONDS
    _LOG.warning(
        "%s: %s; trying again for up to %.0f s (%s)", place, fault.strerror, until - now, RETRY_SECONDS
    )


def _seconds() -> float:
    try:
        return float(os.environ.get(RETRY_SECONDS) or _DEFAULT_SECONDS)
    except ValueError:
        return _DEFAULT_SECONDS


def _translated(error: Exception, url: str) -> OSError | None:
    """Return a fault as an OSError; None if it is an error of another kind."""
    if isinstance(error, UnreachableError | ChangedError | FileExistsError):
        return error
    chain = _chain(error)
    names = {cls.__name__ for each in chain for cls in type(each).__mro__}
    status, code = answer_of(error)

    def is_a(*kinds: type[Exception]) -> bool:
        return any(isinstance(each, kinds) for each in chain)

    said = (str(error) or type(error).__name__).splitlines()[0][:200]
    no_credentials = f"there are no valid credentials in the environment ({error}); set those of the service"
    refused = f"the service refuses it ({said})"
    denied = f"{refused}; check the credentials and what they may do"
    missing, taken = os.strerror(errno.ENOENT), os.strerror(errno.EEXIST)
    if status is not None and code != "NotImplemented" and not names & _PASSING_NAMES:
        passes = status >= 500 or status in _PASSING_STATUS or code in _PASSING_CODES
    else:  # aiohttp gives some of its own faults a status
        by_number = any(isinstance(each, OSError) and each.errno in _PASSING_ERRNO for each in chain)
        is_passing = is_a(TimeoutError, ConnectionError, socket.gaierror)
        passes = bool(names & _PASSING_NAMES) or by_number or is_passing
    rules: tuple[tuple[object, type[OSError], int, str], ...] = (
        (names & _NO_CREDENTIALS, PermissionError, errno.EACCES, no_credentials),
        (passes, UnreachableError, errno.EIO, f"the service does not answer as it should ({said})"),
        (code == "NoSuchBucket", FileNotFoundError, errno.ENOENT, _NO_BUCKET),
        (status == 404 or is_a(FileNotFoundError), FileNotFoundError, errno.ENOENT, missing),
        (status in (401, 403) or is_a(PermissionError), PermissionError, errno.EACCES, denied),
        (status in (412, 416), ChangedError, errno.ESTALE, CHANGED),  # 416: it is shorter than the range
        (is_a(FileExistsError), FileExistsError, errno.EEXIST, taken),
        (status is not None, OSError, errno.EPROTO, refused),
    )
    for applies, kind, number, words in rules:
        if applies:
            return kind(number, words, url)
    return error if isinstance(error, OSError) else None


def _chain(error: Exception) -> list[Exception]:
    """Return an error and its causes: libraries wrap what the service said."""
    chain = [error]
    while len(chain) < 10 and isinstance(cause := chain[-1].__cause__, Exception):
        chain.append(cause)
    return chain


def answer_of(error: Exception) -> tuple[int | None, str]:
    """Return the HTTP status in an error or its causes, if there is one, and S3's code."""
    for each in _chain(error):
        response: Any = getattr(each, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status, str(response.get("Error", {}).get("Code", ""))
        for name in ("status_code", "status", "code"):
            found = getattr(each, name, None)
            if isinstance(found, int) and 100 <= found < 600:
                return found, ""
    return None, ""
