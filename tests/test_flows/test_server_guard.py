"""Access to the server: single requests as browsers and programs send them, profiles, and served folders."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tokmill.flows.errors import ProfileError, UsageError
from tokmill.flows.prefect.app import Guard, with_labels
from tokmill.flows.prefect.settings import HOW, USER, Address, may_have_a_server
from tokmill.flows.profile.served import SERVED, ServedFolder, require_served

HOST = ("Host", "127.0.0.1:4200")
NAVIGATES, DOCUMENT = ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")


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
    asyncio.run(Guard(_prefect, Address().names)(scope, receive, send))
    return sent


OWN_NAMES = ("127.0.0.1:4200", "localhost:4200", "LOCALHOST:4200", "[::1]:4200")
OTHER_NAMES = ("rebound.example:4200", "127.0.0.1", "127.0.0.1:4201", "127.0.0.1:4200.example",
               "localhost.example:4200", "")  # fmt: skip
OTHER_PAGES = (
    "https://page.example",
    "null",
    "http://127.0.0.1:8000",
    "http://127.0.0.1:4200.example",
    "file://",
)


@pytest.mark.parametrize(
    ("code", "headers", "methods"),
    [
        *((200, [("Host", host)], ["GET"]) for host in OWN_NAMES),
        *((421, [("Host", host)], ["GET"]) for host in OTHER_NAMES),
        (421, [], ["GET"]),
        (421, [HOST, ("Host", "rebound.example")], ["GET"]),
        *((403, [HOST, ("Origin", page)], ["GET", "POST", "OPTIONS", "DELETE"]) for page in OTHER_PAGES),
        # the server's own page
        *((200, [HOST, ("Origin", f"http://{name}:4200"), ("Sec-Fetch-Site", "cross-site")], ["POST"])
          for name in ("127.0.0.1", "localhost")),
        (200, [HOST, ("Sec-Fetch-Site", "same-origin")], ["GET"]),
        (200, [HOST, ("Sec-Fetch-Site", "none"), NAVIGATES], ["GET"]),
        # of another site, only a followed link
        *((code, [HOST, ("Sec-Fetch-Site", site), *more], [method])
          for site in ("cross-site", "same-site")
          for code, method, more in (
              (200, "GET", [NAVIGATES, DOCUMENT]),
              (403, "POST", [NAVIGATES, DOCUMENT]),
              (403, "GET", [NAVIGATES, ("Sec-Fetch-Dest", "iframe")]),
              (403, "GET", [("Sec-Fetch-Mode", "no-cors"), ("Sec-Fetch-Dest", "script")]))),
    ],
)  # fmt: skip
def test_only_programs_of_the_machine_and_the_servers_own_page_are_answered(
    code: int, headers: list[tuple[str, str]], methods: list[str]
) -> None:
    assert [answer(*headers, method=method)[0]["status"] for method in methods] == [code] * len(methods)


def test_a_websocket_of_another_page_is_closed_before_it_opens() -> None:
    assert answer(HOST, kind="websocket") == [{"type": "websocket.accept"}]
    refused = answer(HOST, ("Origin", "https://page.example"), kind="websocket")
    assert [message["type"] for message in refused] == ["websocket.close"]


def test_answers_may_not_be_framed_and_load_nothing_from_elsewhere() -> None:
    headers = dict(answer(HOST)[0]["headers"])
    assert (headers[b"x-own"], headers[b"x-frame-options"]) == (b"1", b"DENY")
    policy = headers[b"content-security-policy"].decode()
    assert all(rule in policy for rule in ("frame-ancestors 'none'", "default-src 'self'"))


def test_a_server_for_a_network_answers_its_machines_names_and_those_it_is_given() -> None:
    names = set(Address("0.0.0.0", 4300, ["gpu7.example.org", "proxy:8443"]).names)
    more = {"gpu7.example.org", "gpu7.example.org:4300", "proxy:8443"}
    assert names >= {"127.0.0.1:4300", "localhost:4300", "[::1]:4300", *more}
    assert "page.example:4300" not in names
    hosts = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "10.0.0.7": "10.0.0.7", "fe80::1": "[fe80::1]"}
    assert {host: Address(host, 80).url for host in hosts} == {
        host: f"http://{reached}:80" for host, reached in hosts.items()
    }
    for name in ("*", "*.example.org", "http://gpu7", "a,b", ""):
        with pytest.raises(UsageError, match="--allow-host"):
            _ = Address(more=[name]).names


def test_requests_for_runs_are_labelled_with_who_asks() -> None:
    page = {"sec-fetch-site": "same-origin", "x-forwarded-user": "ann"}
    by_page = json.loads(with_labels(b'{"name": "x", "labels": {"a": 1}}', page))
    program = {"authorization": "Basic YWRtaW46c2VjcmV0"}  # admin:secret
    assert by_page == {"name": "x", "labels": {"a": 1, HOW: "page", USER: "ann"}}
    assert json.loads(with_labels(b"{}", program)) == {"labels": {HOW: "program", USER: "admin"}}
    assert json.loads(with_labels(b"{}", {}))["labels"] == {HOW: "program"}
    assert [with_labels(body, page) for body in (b"[1]", b"{")] == [b"[1]", b"{"]


def test_a_served_folder_has_one_name_by_whatever_path_and_another_for_each_store(tmp_path: Path) -> None:
    """That a store is served once is in test_serving.py."""
    (tmp_path / "link").symlink_to(tmp_path)
    served = ServedFolder.of(tmp_path, tmp_path / "store")
    assert ServedFolder.of(tmp_path / "link", tmp_path / "store") == served
    others = [(tmp_path / "other", tmp_path / "store"), (tmp_path, tmp_path / "other")]
    assert len({served.name, *(ServedFolder.of(*other).name for other in others)}) == 3


def test_only_profiles_of_the_served_folder_and_shipped_ones_are_taken(tmp_path: Path, monkeypatch) -> None:
    """Those elsewhere are refused whether they exist or not."""
    served = tmp_path / "served"
    served.mkdir()
    (tmp_path / "own.toml").touch()
    (served / "link").symlink_to(tmp_path)
    monkeypatch.chdir(served)
    monkeypatch.setenv(SERVED, str(served))
    for profile in ("own.toml", "sub/own.toml", "quickstart", "sub/../own.toml"):
        require_served(profile)
    elsewhere = ("/etc/passwd", "../own.toml", "link/own.toml", "~/own.toml", "/etc/own.toml")
    for profile in elsewhere:
        with pytest.raises(ProfileError, match=r"outside the served folder.*--allow-profiles"):
            require_served(profile)
    monkeypatch.setenv(SERVED, "")
    require_served(elsewhere[0])


CONFIGURED = 'active = "team"\n[profiles.team]\nPREFECT_API_URL = "http://127.0.0.1:1/api"\n'


@pytest.mark.parametrize(
    ("environment", "files", "expected"),
    [
        ({}, {}, False),
        ({"PREFECT_API_URL": "http://127.0.0.1:1/api"}, {}, True),
        ({}, {"home/profiles.toml": CONFIGURED}, True),
        ({}, {"home/profiles.toml": "[profiles.ephemeral]"}, False),
        ({"PREFECT_PROFILE": "local"}, {}, True),
        ({}, {".env": "PREFECT_API_URL=http://127.0.0.1:1/api"}, True),
        ({}, {".env": "OTHER=1", "pyproject.toml": "[tool.other]"}, False),
        ({}, {"prefect.toml": ""}, True),
        ({}, {"pyproject.toml": "[tool.prefect.api]"}, True),
    ],
)
def test_whether_a_server_may_be_configured(
    environment, files, expected, tmp_path: Path, monkeypatch
) -> None:
    """An unchanged run is shown there, and imports Prefect for it only then."""
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    for name, value in {"PREFECT_HOME": str(tmp_path / "home"), **environment}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "home").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert may_have_a_server() == expected
