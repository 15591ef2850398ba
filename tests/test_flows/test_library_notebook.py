"""docs/library.md in a real kernel: displays, progress, a running event loop, short errors, no Prefect."""

import json
import os
import sys
from typing import Any

import pytest

from tests.test_flows.commands import clean_environment
from tests.test_flows.test_documents import PAGE, cells

pytestmark = [pytest.mark.consumers, pytest.mark.slow]

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
LOOP = 'import asyncio\nawait asyncio.sleep(0)\ntokmill.run("smoke", store="other", until="corpus").num_made'
FAILS = 'tokmill.train(["a"], vocab_size=300)'
BUG = 'raise ZeroDivisionError("not ours")'


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outputs of every cell, by its code, after one execution in a kernel of this environment."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    import nbformat  # noqa: PLC0415 - comes with nbclient

    folder = tmp_path_factory.mktemp("notebook")
    spec = folder / "share" / "jupyter" / "kernels" / "own"
    spec.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "own", "language": "python"})
    )
    codes = [
        *(code for code, _ in cells(PAGE.read_text("utf-8"))),
        *SHOWN,
        LOOP,
        '"prefect" in sys.modules',
        FAILS,
        BUG,
    ]
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in ["import sys", *codes]]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "share" / "jupyter"))
        environment = clean_environment(HOME=str(folder), IPYTHONDIR=str(folder / "ipython"))
        client = nbclient.NotebookClient(book, timeout=300, kernel_name="own", allow_errors=True)
        client.execute(env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=str(folder))
    return {cell.source: cell.outputs for cell in book.cells}


def test_the_page_works_in_a_kernel_without_prefect(executed: dict[str, list[Any]]) -> None:
    failed = [code for code, outputs in executed.items() for one in outputs if one.output_type == "error"]

    assert failed == [FAILS, BUG]
    (told,) = executed['"prefect" in sys.modules']
    assert told.data["text/plain"] == "False"


@pytest.mark.parametrize("code", SHOWN)
def test_what_a_cell_gives_shows_itself(code: str, executed: dict[str, list[Any]]) -> None:
    (shown,) = executed[code]

    assert shown.data["text/html"].startswith('<div class="tokmill">')


def test_progress_is_one_display_that_is_gone_at_the_end(executed: dict[str, list[Any]]) -> None:
    progress, result = executed[LOOP]

    assert (progress.output_type, progress.data["text/html"]) == ("display_data", "")
    assert int(result.data["text/plain"]) == 1


def test_an_error_of_ours_is_its_message_and_any_other_has_its_traceback(
    executed: dict[str, list[Any]],
) -> None:
    *progress, ours = executed[FAILS]
    (other,) = executed[BUG]

    assert "✗" in progress[0].data["text/html"]
    assert len(ours.traceback) == 1
    assert "lower vocab_size to 257" in ours.traceback[0]
    assert "<module>" in "".join(other.traceback) or "line" in "".join(other.traceback)
