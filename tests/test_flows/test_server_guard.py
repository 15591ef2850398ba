"""Access control of the server: single requests as browsers and programs send them."""

import asyncio
from typing import Any

import pytest

from tokmill.flows.errors import UsageError
from tokmill.flows.prefect.guard import Guard
from tokmill.flows.prefect.settings import own_names, reachable

HOST = "127.0.0.1:4200"


async def _prefect(scope: Any, receive: Any, send: Any) -> None:
    """An application that accepts everything, to be guarded."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"yes"})


def answer(*headers: tuple[str, str], kind: str = "http", method: str = "GET") -> list[dict[str, Any]]:
    """Return the answer of the guarded application to a request with these headers."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": f"{kind}.connect"}

    encoded = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope = {"type": kind, "method": method, "path": "/api/health", "headers": encoded}
    asyncio.run(Guard(_prefect, own_names("127.0.0.1", 4200))(scope, receive, send))
    return sent


def status(*headers: tuple[str, str], method: str = "GET") -> int:
    """The status of the answer to a request."""
    code: int = answer(*headers, method=method)[0]["status"]
    return code


@pytest.mark.parametrize("host", [HOST, "localhost:4200", "LOCALHOST:4200", "[::1]:4200"])
def test_programs_of_the_machine_are_answered(host: str) -> None:
    assert status(("Host", host)) == 200


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example:4200",
        "127.0.0.1",
        "127.0.0.1:4201",
        "127.0.0.1:4200.example",
        "localhost.example:4200",
        "",
    ],
)
def test_a_name_that_is_not_the_servers_own_is_refused(host: str) -> None:
    assert status(("Host", host)) == 421


def test_no_host_and_two_hosts_are_refused() -> None:
    assert status() == 421
    assert status(("Host", HOST), ("Host", "rebound.example")) == 421


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize(
    "origin",
    ["https://page.example", "null", "http://127.0.0.1:8000", "http://127.0.0.1:4200.example", "file://"],
)
def test_another_pages_request_is_refused_whatever_its_method(origin: str, method: str) -> None:
    assert status(("Host", HOST), ("Origin", origin), method=method) == 403


def test_a_websocket_of_another_page_is_closed_before_it_opens() -> None:
    assert answer(("Host", HOST), kind="websocket") == [{"type": "websocket.accept"}]
    refused = answer(("Host", HOST), ("Origin", "https://page.example"), kind="websocket")
    assert [message["type"] for message in refused] == ["websocket.close"]


@pytest.mark.parametrize("origin", ["http://127.0.0.1:4200", "http://localhost:4200"])
def test_the_servers_own_page_is_answered(origin: str) -> None:
    assert status(("Host", HOST), ("Origin", origin), ("Sec-Fetch-Site", "cross-site"), method="POST") == 200
    assert status(("Host", HOST), ("Sec-Fetch-Site", "same-origin")) == 200
    assert status(("Host", HOST), ("Sec-Fetch-Site", "none"), ("Sec-Fetch-Mode", "navigate")) == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_of_another_site_only_a_followed_link_is_answered(site: str) -> None:
    came = [("Host", HOST), ("Sec-Fetch-Site", site)]
    navigates = ("Sec-Fetch-Mode", "navigate")

    assert status(*came, navigates, ("Sec-Fetch-Dest", "document")) == 200
    assert status(*came, navigates, ("Sec-Fetch-Dest", "document"), method="POST") == 403
    assert status(*came, navigates, ("Sec-Fetch-Dest", "iframe")) == 403
    assert status(*came, ("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "script")) == 403


def test_answers_may_not_be_framed_and_load_nothing_from_elsewhere() -> None:
    headers = dict(answer(("Host", HOST))[0]["headers"])

    assert headers[b"x-own"] == b"1"
    assert headers[b"x-frame-options"] == b"DENY"
    policy = headers[b"content-security-policy"].decode()
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'self'" in policy


def test_a_server_for_a_network_answers_its_machines_names_and_those_it_is_given() -> None:
    names = own_names("0.0.0.0", 4300, ["gpu7.example.org", "proxy:8443"])

    assert {
        "127.0.0.1:4300",
        "localhost:4300",
        "gpu7.example.org",
        "gpu7.example.org:4300",
        "proxy:8443",
    } <= set(names)
    assert "page.example:4300" not in names
    assert (reachable("0.0.0.0"), reachable("::"), reachable("10.0.0.7")) == (
        "127.0.0.1",
        "[::1]",
        "10.0.0.7",
    )


@pytest.mark.parametrize("name", ["*", "*.example.org", "http://gpu7", "a,b", ""])
def test_a_name_that_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--allow-host"):
        own_names("127.0.0.1", 4200, [name])
