"""Seconds from "Cancel" in the Prefect UI to the end of a run that is training.

    python benchmarks/cancelling.py ../shared/data/corpora/english/*.jsonl

Starts `tokmill up` in a new folder, has its deployment train a vocabulary that takes minutes, waits until the
training is under way, and sets the state that the page's button sets. Two times count from there: until the
run's process is gone, and until Prefect shows "Cancelled". Prefect's worker adds the difference: it looks for
the process every three seconds, then loads the flow in a new process to look for hooks. Needs a machine with
nothing else to do, because every second of imports counts twice.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

PROFILE = """
[sources.all]
files = {files!r}
format = "jsonl"
[train]
vocab_size = 200_000
min_frequency = 1
split_pattern = "gpt2"
special_tokens = ["<|endoftext|>"]
[encode]
end_of_document = "<|endoftext|>"
[pack]
sequence_length = 2048
"""


def main() -> None:
    """Measure and print one line per run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="JSONL files; about 30 MB train long enough")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--port", type=int, default=4391)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [str(file.resolve()) for file in asked.files]
        (Path(folder) / "big.toml").write_text(PROFILE.format(files=files), encoding="utf-8")
        with served(Path(folder), asked.port):
            os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{asked.port}/api"
            from prefect.client.orchestration import get_client

            with get_client(sync_client=True) as client:
                for number in range(asked.runs):
                    gone, shown = cancelled(client, seconds_into_training=0.5 + number % 4)
                    print(f"process gone after {gone:.1f} s, Cancelled after {shown:.1f} s", flush=True)


@contextmanager
def served(folder: Path, port: int) -> Iterator[None]:
    """`tokmill up` in a folder, with a store and a Prefect home of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "TOKMILL"))}
    own = {"PREFECT_HOME": str(folder / "prefect"), "TOKMILL_STORE": str(folder / "store")}
    command = [sys.executable, "-m", "tokmill", "up", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, env=kept | own, stderr=subprocess.PIPE, text=True) as up:
        if up.stderr is None or not any(line.startswith("up: ") for line in up.stderr):
            raise SystemExit("tokmill up did not start")
        try:
            yield
        finally:
            up.terminate()


def cancelled(client: "SyncPrefectClient", seconds_into_training: float) -> tuple[float, float]:
    """Start a run, cancel it in its training; return the seconds until its process and its state end."""
    from prefect.states import Cancelling

    deployment = client.read_deployments()[0]
    run = client.create_flow_run_from_deployment(deployment.id, parameters={"profile": "big.toml"})
    while not training(client, run.id):
        time.sleep(0.3)
    time.sleep(seconds_into_training)
    asked, gone = time.monotonic(), 0.0
    client.set_flow_run_state(run.id, Cancelling())
    while True:
        state = client.read_flow_run(run.id).state
        now = time.monotonic() - asked
        if not gone and not engines():
            gone = now
        if state is not None and state.is_final():
            if state.name != "Cancelled":
                raise SystemExit(f"the run ended as {state.name}: {state.message}")
            return gone or now, now
        time.sleep(0.1)


def training(client: "SyncPrefectClient", run: object) -> bool:
    """Whether the run's training has begun; a run that ended before cannot be measured."""
    state = client.read_flow_run(run).state  # type: ignore[arg-type]
    if state is not None and state.is_final():
        raise SystemExit(f"the run ended before it trained: {state.message}")
    tasks = [task for task in client.read_task_runs() if task.flow_run_id == run]
    return any(task.name.startswith("train") and task.state and task.state.is_running() for task in tasks)


def engines() -> bool:
    """Whether a process of a run is alive."""
    return (
        subprocess.run(["pgrep", "-f", "prefect[.]engine"], capture_output=True, check=False).returncode == 0
    )


if __name__ == "__main__":
    main()
