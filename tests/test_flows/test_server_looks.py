"""Faults that are noticed in a server (its tasks, its log, its packages), and the folder that it serves."""

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokmill.flows.errors import ProfileError, ServeError
from tokmill.flows.profile.served import SERVED, require_served
from tokmill.flows.server.findings import look_at_faults, look_at_packages, out_of_bounds
from tokmill.flows.server.loops import Loops, write_faults
from tokmill.flows.server.served_folder import ServedFolder
from tokmill.flows.server.store_lock import last_served, lock_store
from tokmill.flows.server.watching import Watch


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Path]:
    """The file of errors, during a test."""
    before = {logger: list(logger.handlers) for logger in _loggers()}
    file = tmp_path / "faults.log"
    write_faults(file)
    yield file
    for logger in _loggers():
        logger.handlers[:] = before.get(logger, [])


def _loggers() -> list[logging.Logger]:
    known = logging.getLogger().manager.loggerDict.values()
    return [logging.getLogger(), *(each for each in known if isinstance(each, logging.Logger))]


def test_a_task_of_the_server_that_dies_is_written_down(faults: Path) -> None:
    async def dies() -> None:
        raise RuntimeError("the scheduler is gone")

    async def ends_well() -> None:
        return

    asyncio.run(_serve_with(dies(), ends_well()))

    (line,) = faults.read_text("utf-8").splitlines()
    assert line.endswith("dies of the server has ended: RuntimeError: the scheduler is gone")


def test_what_the_stop_of_the_server_ends_is_no_fault(faults: Path) -> None:
    async def runs_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("interrupted")

    asyncio.run(_serve_with(runs_on(), cancel=True))

    assert faults.read_text("utf-8") == ""


async def _serve_with(*background: Any, cancel: bool = False) -> None:
    """Start an application with background tasks, let them run, and stop it."""

    async def application(scope: Any, receive: Any, send: Any) -> None:
        tasks = [asyncio.create_task(each) for each in background]
        await send({"type": "lifespan.startup.complete"})
        while (await receive())["type"] != "lifespan.shutdown":
            await asyncio.sleep(0)
        for task in tasks if cancel else ():
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    messages = iter([*(["turn"] * 5), "lifespan.shutdown"])

    async def receive() -> Any:
        return {"type": next(messages)}

    async def send(message: Any) -> None:
        assert message["type"] == "lifespan.startup.complete"

    await Loops(application)({"type": "lifespan"}, receive, send)


def test_a_loop_that_fails_every_minute_is_told_once(faults: Path, tmp_path: Path) -> None:
    told: list[str] = []
    watch = Watch("http://127.0.0.1:9/api", tmp_path, told.append)
    for milliseconds in (68, 7, 112):
        error = ValueError("Can't evaluate bulk DML statement")
        said = f"↩ [{milliseconds:6d}ms] schedule_deployments()"
        logging.getLogger("docket.dependencies").error(said, exc_info=error)
        watch.look()

    (text,) = told
    assert "schedule_deployments(): ValueError: Can't evaluate bulk DML statement" in text
    assert str(tmp_path / "server.log") in text
    assert len(look_at_faults(tmp_path)) == 1


def test_packages_that_pip_passed_the_bounds_of_are_named() -> None:
    assert look_at_packages() == []
    (finding,) = out_of_bounds(["sqlalchemy<2", "numpy>=2", "tokmill; extra == 'none'"])
    assert finding.text.startswith("sqlalchemy 2.")
    assert "<2" in finding.text


def test_a_place_is_named_after_folder_and_store(tmp_path: Path) -> None:
    here = ServedFolder.of(tmp_path, tmp_path / "store")
    (tmp_path / "link").symlink_to(tmp_path)

    assert ServedFolder.of(tmp_path / "link", tmp_path / "store") == here
    names = {
        here.name,
        ServedFolder.of(tmp_path, tmp_path / "other").name,
        ServedFolder.of(tmp_path / "sub", here.store).name,
    }
    assert len(names) == 3
    assert ServedFolder.of(Path("/"), tmp_path).name.startswith("folder-")


def test_a_store_is_served_once_and_the_second_is_told_where(tmp_path: Path) -> None:
    served, logs = ServedFolder.of(tmp_path, tmp_path / "store"), tmp_path / "store" / ".up"
    with lock_store(served, "http://127.0.0.1:4200", logs):
        other = ServedFolder.of(tmp_path / "other", tmp_path / "store")
        with (
            pytest.raises(
                ServeError, match=rf"{tmp_path}.* at http://127.0.0.1:4200 \(process {os.getpid()}\)"
            ),
            lock_store(other, "http://127.0.0.1:4300", logs),
        ):
            pass
        assert json.loads((logs / "up.json").read_text("utf-8"))["deployment"] == served.name
    with lock_store(served, "http://127.0.0.1:4200", logs):
        assert last_served(logs) is not None
    assert last_served(logs) is None


@pytest.mark.parametrize("profile", ["own.toml", "sub/own.toml", "quickstart", "sub/../own.toml"])
def test_profiles_of_the_served_folder_and_shipped_ones_are_taken(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVED, str(tmp_path))
    monkeypatch.chdir(tmp_path)

    require_served(profile)


@pytest.mark.parametrize(
    "profile", ["/etc/passwd", "../own.toml", "link/own.toml", "~/own.toml", "/etc/own.toml"]
)
def test_a_profile_elsewhere_is_refused_whether_it_exists_or_not(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (tmp_path / "own.toml").touch()
    (served / "link").symlink_to(tmp_path)
    monkeypatch.chdir(served)
    monkeypatch.setenv(SERVED, str(served))

    with pytest.raises(ProfileError, match=r"outside the served folder.*--allow-profiles"):
        require_served(profile)

    monkeypatch.setenv(SERVED, "")
    require_served(profile)
