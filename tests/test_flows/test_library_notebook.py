"""docs/library.md in a real kernel: displays, progress, a running event loop, short errors, no Prefect."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import clean_environment
from tests.test_flows.test_documents import PAGE, cells

pytestmark = [pytest.mark.consumers, pytest.mark.slow]

LOOP = 'import asyncio\nawait asyncio.sleep(0)\ntokmill.run("smoke", store="other", until="corpus").num_made'
PREFECT = '"prefect" in sys.modules'
FAILS = 'tokmill.train(["a"], vocab_size=300)'
BUG = 'raise ZeroDivisionError("not ours")'


SHOWN = (
    "store",
    "store.runs()",
    "run",
    'run["packed"]',
    "tok",
    "audit",
    "mixture",
    "packed",
    "ids",
    "run.tasks",
)


def test_the_page_works_in_a_kernel_and_shows_what_cells_give(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat  # noqa: PLC0415 - comes with nbclient

    spec = tmp_path / "share" / "jupyter" / "kernels" / "own"
    spec.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = {"argv": command, "display_name": "own", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(kernel))
    codes = [*(code for code, _ in cells(PAGE.read_text("utf-8"))), *SHOWN, LOOP, PREFECT, FAILS, BUG]
    each = [nbformat.v4.new_code_cell(code) for code in ["import sys", *codes]]
    book = nbformat.v4.new_notebook(cells=each)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
        environment = clean_environment(HOME=str(tmp_path), IPYTHONDIR=str(tmp_path / "ipython"))
        client = nbclient.NotebookClient(book, timeout=300, kernel_name="own", allow_errors=True)
        client.execute(env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=str(tmp_path))
    shown: dict[str, list[Any]] = {cell.source: cell.outputs for cell in book.cells}
    failed = [code for code, outputs in shown.items() for one in outputs if one.output_type == "error"]
    assert failed == [FAILS, BUG]
    assert shown[PREFECT][0].data["text/plain"] == "False"
    for code in SHOWN:
        (one,) = shown[code]
        assert one.data["text/html"].startswith('<div class="tokmill">')
    progress, result = shown[LOOP]  # a display that is gone at the end
    assert (progress.output_type, progress.data["text/html"]) == ("display_data", "")
    assert int(result.data["text/plain"]) == 1
    *progress, ours = shown[FAILS]
    (other,) = shown[BUG]
    assert "✗" in progress[0].data["text/html"]
    assert (len(ours.traceback), "lower vocab_size to 257" in ours.traceback[0]) == (1, True)
    assert "<module>" in "".join(other.traceback) or "line" in "".join(other.traceback)
