"""Sends a message to a webhook: one POST with a JSON body.

The address is looked up just before, where the profile says that it is kept. It is in no message of ours: the
errors of the libraries, which may quote it, are told by their kind.
"""

from urllib.parse import urlsplit

from tokmill.flows.kept import KeptError, kept
from tokmill.flows.notify.delivery import DeliveryError

_TIMED_OUT, _TOO_MANY = 408, 429
_SERVER_ERRORS = 500


def post(reference: str, body: bytes, timeout: float) -> None:
    """Send a body.

    Args:
        reference: where the URL is kept, e.g. `env:TOKMILL_WEBHOOK`.
        body: JSON.
        timeout: in seconds.

    Raises:
        DeliveryError: it was not taken.
    """
    import http.client  # noqa: PLC0415 - with TLS a tenth of a second, and only for this
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    headers = {"Content-Type": "application/json", "User-Agent": "tokmill"}
    address = _address(reference)
    request = urllib.request.Request(address, body, headers, method="POST")  # noqa: S310 - see `_address`

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """A redirected POST would become a GET, without the message."""

        def redirect_request(self, *_: object) -> None:
            """Refuse."""

    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=timeout):
            pass
    except urllib.error.HTTPError as error:
        with error:
            passing = error.code >= _SERVER_ERRORS or error.code in (_TIMED_OUT, _TOO_MANY)
            raise DeliveryError(f"it answered {error.code}", passing=passing) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DeliveryError(type(reason).__name__) from None


def _address(reference: str) -> str:
    try:
        address = kept(reference)
    except KeptError as error:
        raise DeliveryError(str(error), passing=error.passing) from error
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise DeliveryError("what it names is not a URL that begins with http:// or https://", passing=False)
    return address
