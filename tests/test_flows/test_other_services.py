"""Whole runs on stores at Google's and Azure's services: by their emulators (`tests.other_services`)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.other_services import OtherService
from tests.test_flows.commands import Tokmill, clean_environment

pytestmark = [pytest.mark.objects, pytest.mark.slow]


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_what_one_machine_makes_another_finds(
    scheme: str,
    other_services: Callable[[str], OtherService],
    other_bucket: Callable[[str], str],
    tmp_path: Path,
) -> None:
    url = f"{other_bucket(scheme)}/team"

    def machine(name: str) -> Tokmill:
        own = {**other_services(scheme).environment, "TOKMILL_CACHE": str(tmp_path / name)}
        return Tokmill(tmp_path, clean_environment(HOME=str(tmp_path), **own))

    made = machine("here").run("smoke", "--no-prefect", "--store", url)
    found = machine("there").run("smoke", "--no-prefect", "--store", url)
    verified = machine("third")("store", "verify", "--deep", "--store", url)

    assert {task["how"] for task in made["tasks"]} == {"made"}
    assert {task["how"] for task in found["tasks"]} == {"cached"}
    assert verified.code == 0, verified.err
