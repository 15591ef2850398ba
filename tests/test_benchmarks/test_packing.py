"""The benchmark of packing runs on a corpus of a few documents: all of its parts that need no peer."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard


@pytest.fixture(scope="module")
def few_documents(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like that of the shared data, with few documents."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "vocabs").mkdir()
    shutil.copy(shared_data / "vocabs" / "cl100k_base.tiktoken", folder / "vocabs")
    (folder / "corpora").mkdir()
    lines = [json.dumps({"text": f"document {number} " * (1 + number % 40)}) for number in range(300)]
    file = folder / "corpora" / "few.jsonl.zst"
    file.write_bytes(zstandard.compress("\n".join(lines).encode()))
    return folder


@pytest.mark.shared_data
@pytest.mark.slow
def test_every_part_without_peers_runs(few_documents: Path, checkout: Path) -> None:
    script = str(checkout / "benchmarks" / "packing.py")
    parts = [word for part in ("strategies", "disk", "memory") for word in ("--only", part)]
    few = ["--length", "64", "--repeat", "1", "--documents", "5000", "--data", str(few_documents)]

    done = subprocess.run([sys.executable, script, *parts, *few], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "| 64 | best_fit | " in done.stdout
    assert "| 64 | packed | " in done.stdout
    assert "planned 5,000 documents" in done.stdout
