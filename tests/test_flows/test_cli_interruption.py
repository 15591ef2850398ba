"""Ctrl-C, as a terminal sends it: to the run and to everything that it started."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.test_flows.commands import clean_environment

PROFILE = """
[sources.many]
files = ["*.txt"]
[ingest]
shard_bytes = 65536
[train]
vocab_size = 400
"""


@pytest.mark.slow
@pytest.mark.server
def test_ctrl_c_ends_a_run_on_the_embedded_server_soon_and_tidily(tmp_path, migrated_home):
    home = shutil.copytree(migrated_home, tmp_path / "prefect")
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"Document {number} of many, with some words. " * 2000)
    (tmp_path / "own.toml").write_text(PROFILE)
    command = [sys.executable, "-m", "flows", "run", "own.toml", "--workers", "1"]
    environment = clean_environment(PREFECT_HOME=str(home))
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        try:
            first = next(line for line in run.stderr if line.startswith("ingest"))
            os.killpg(run.pid, signal.SIGINT)
            rest = run.stderr.read()
            code = run.wait(60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert "made" in first
    assert code == 130
    assert rest.splitlines()[-1].startswith("tokmill: interrupted")
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
    assert list((tmp_path / "tokmill-store" / "corpus").iterdir())


def test_a_server_that_does_not_answer_is_said(tmp_path):
    environment = clean_environment(
        PREFECT_HOME=str(tmp_path / "prefect"), PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    done = subprocess.run(
        [sys.executable, "-m", "flows", "run", "smoke"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no Prefect server answers at http://127.0.0.1:9/api" in done.stderr
    assert "Traceback" not in done.stderr
