"""Access control of the server, which answers local programs and its own page, but no other web page.

A browser sends requests to 127.0.0.1 for any page that it shows. Three rules refuse requests of other pages
before Prefect sees them:

- `Host` must be one of the server's own names. If the DNS name of a page is changed to 127.0.0.1 (DNS
  rebinding), the browser treats page and server as one origin, but `Host` still has the page's name.
- `Origin`, which browsers send with POST requests and WebSockets, must be one of the server's own.
- A request that the browser marks as from another site (`Sec-Fetch-Site`) must be a link that a person
  followed.

Programs send neither `Origin` nor `Sec-Fetch-Site`. Headers of the answers forbid other pages to show the
server's page in a frame (clickjacking), and forbid the page to load scripts from, or send data to, other
servers.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_MISDIRECTED, _FORBIDDEN = 421, 403


class Guard:
    """An ASGI application that refuses requests of foreign pages, and passes all others on."""

    def __init__(self, application: Application, hosts: Iterable[str]) -> None:
        """Guard an application; `hosts` as in `Host`, with the port unless it is the scheme's default."""
        self._application = application
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins(self._hosts))
        self._headers = list(_protecting_headers(self._hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] not in {"http", "websocket"}:
            await self._application(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is None:
            await self._application(scope, receive, self._protecting(send))
        else:
            await _refuse(scope, send, *refused)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the reason if a request is refused."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts, from_origins = headers.get("host", []), headers.get("origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            names = ", ".join(sorted(self._hosts))
            asked = ", ".join(hosts) or "no name"
            return (
                _MISDIRECTED,
                f"this server answers to {names}, not to {asked}; see `tokmill up --allow-host`",
            )
        if any(origin.lower() not in self._origins for origin in from_origins):
            return _FORBIDDEN, "this server refuses requests from other pages"
        sites = headers.get("sec-fetch-site", [])
        foreign = any(site not in {"same-origin", "none"} for site in sites)
        if foreign and not from_origins and not _is_followed_link(scope, headers):
            return _FORBIDDEN, "this server refuses to be shown in other pages"
        return None

    def _protecting(self, send: Send) -> Send:
        """Return a `send` that adds our headers to every answer."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await send(message)

        return sending


def origins(hosts: Iterable[str]) -> list[str]:
    """Return the origins of pages from these hosts, in order; https too, for a proxy with TLS."""
    return [f"{scheme}://{host}" for host in sorted(hosts) for scheme in ("http", "https")]


def _is_followed_link(scope: Scope, headers: MutableMapping[str, list[str]]) -> bool:
    """Whether a request loads a whole page, as a link in an e-mail does, and not a part of another page."""
    navigates = headers.get("sec-fetch-mode") == ["navigate"] and headers.get("sec-fetch-dest") == [
        "document"
    ]
    return scope["type"] == "http" and scope["method"] == "GET" and navigates


def _protecting_headers(hosts: Iterable[str]) -> Iterable[tuple[bytes, bytes]]:
    own = sorted(host for host in hosts if not host.startswith("["))  # a policy has no notation for IPv6
    reached = " ".join(f"{scheme}://{host}" for host in own for scheme in ("http", "https", "ws", "wss"))
    policy = (
        f"default-src 'self'; connect-src 'self' {reached}; "
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    )
    yield b"content-security-policy", policy.encode()
    yield b"x-frame-options", b"DENY"
    yield b"x-content-type-options", b"nosniff"
    yield b"referrer-policy", b"same-origin"
    yield b"cross-origin-opener-policy", b"same-origin"
    yield b"cross-origin-resource-policy", b"same-origin"


async def _refuse(scope: Scope, send: Send, status: int, reason: str) -> None:
    """Answer with one line of text; close a WebSocket before accepting it, which the client sees as 403."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason[:100]})
    else:
        await answer(scope, send, status, reason)


async def answer(
    scope: Scope, send: Send, status: int, content: str | bytes, media_type: str = "text/plain"
) -> None:
    """Answer a request with a page, or with a line of text."""
    body = f"{content}\n".encode("utf-8", "replace") if isinstance(content, str) else content
    kind, length = f"{media_type}; charset=utf-8".encode(), str(len(body)).encode()
    headers = [(b"content-type", kind), (b"content-length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
