"""A training that is killed in the middle is restarted from the counts: no text is counted again."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_tasks.whole_line import Line, LineParams
from tokmill.tasks.store import Store
from tokmill.tasks.train.stage import TrainParams

CHECKOUT = Path(__file__).parents[2]
PARAMS = LineParams(train=TrainParams(vocab_size=700))

KILLED = """
import os, signal, sys
from pathlib import Path
from tokmill.tasks.core.context import progress_reported_to
from tokmill.tasks.store import Store
from tests.test_tasks.test_train_crash import PARAMS
from tests.test_tasks.whole_line import Line

def die(advance):
    if advance.unit == "merges":
        print(advance.done, advance.total, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

line = Line(Store.open(sys.argv[1]), Path(sys.argv[2]))
with progress_reported_to(die):
    line.tokenizer(PARAMS, *line.corpus())
"""


def made(store: Path, kind: str) -> dict[Path, int]:
    """When each artifact of a kind was published."""
    return {path: path.stat().st_mtime_ns for path in store.glob(f"{kind}/*/record.json")}


@pytest.mark.slow
def test_a_killed_training_restarts_from_the_counts(tmp_path: Path) -> None:
    (tmp_path / "texts" / "en").mkdir(parents=True)
    shuffler = random.Random(3)
    texts = [" ".join("".join(shuffler.choices("abcdef", k=6)) for _ in range(50)) for _ in range(60)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "texts" / "en" / "all.jsonl").write_text(lines)
    store = tmp_path / "store"

    command = [sys.executable, "-c", KILLED, str(store), str(tmp_path / "texts")]
    killed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    counted = made(store, "counts_shard") | made(store, "counts")

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done, total = map(int, killed.stdout.split())
    assert 0 < done < total == 443
    assert len(counted) == 2
    assert not made(store, "tokenizer")

    found = []
    for place in (store, tmp_path / "undisturbed"):
        line = Line(Store.open(place), tmp_path / "texts")
        found.append(line.tokenizer(PARAMS, *line.corpus())["tokenizer"])
    assert made(store, "counts_shard") | made(store, "counts") == counted
    assert found[0] == found[1]
