"""The files that a request goes through from `tokmill run` to an encoded shard: few, and all on the page."""

import json
import re
from pathlib import Path

import pytest

from tests.test_flows.commands import RUN_SECONDS, Tokmill
from tests.test_flows.followed import Follower
from tests.test_flows.forking import run_forked

pytestmark = [pytest.mark.server, pytest.mark.slow]

MOST_FILES = 36


@pytest.fixture
def tokmill(on_prefect: Tokmill) -> Tokmill:
    """The command line with the session's server."""
    return on_prefect


def test_a_run_reaches_an_encoded_shard_through_few_files(tokmill: Tokmill, checkout: Path) -> None:
    result = tokmill.folder / "files.json"
    environment = {**tokmill.environment, "TOKMILL_STORE": str(tokmill.store)}
    command = ("run", "smoke", "--workers", "1")
    follow = Follower(result).follow
    code, _, said = run_forked(command, tokmill.folder, environment, RUN_SECONDS, follow)
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## The way of a run")[2].partition("\n## ")[0]
    rows = "\n".join(line for line in section.splitlines() if line.startswith("|"))

    assert code == 0, said
    found = json.loads(result.read_text(encoding="utf-8"))
    assert found == sorted(set(re.findall(r"`((?:flows|tasks|tokenizer)/[\w/]+\.py)`", rows)))
    assert len(found) <= MOST_FILES
