"""The summary of a run that failed: what a person reads of it in Prefect's pages."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.test_tasks.store_stages import ask
from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.run.execution import Standing
from tokmill.flows.run.failure import failure_summary, refusal_summary
from tokmill.flows.run.results import RunRow
from tokmill.tasks.core.errors import DocumentError, GateError, MachineError, SourceError
from tokmill.tasks.store import Store

TASK_RUN = UUID(int=7)


def failed(error: Exception, title: str | None = None) -> RunError:
    """Return the error of a run whose task failed."""
    failure = RunError(f"{title}: {error}" if title else str(error), title)
    failure.__cause__ = error
    return failure


def test_a_failed_task_is_named_with_its_problem_fix_and_what_is_kept(tmp_path: Path) -> None:
    ref = Store.open(tmp_path).realize(ask("one")).ref
    rows = [RunRow("ingest", ref, "made", 2.0, {}, 0.0), RunRow("encode[a/0]", ref, "cached", 0.0, {}, 2.0)]
    error = failed(DocumentError("a/*.jsonl, line 7: no text; set on_error"), "encode[a/1]")
    standing = Standing(rows, [("encode[a/1]", error)], {"ingest": 1, "encode[*]": 3}, ["mix", "pack"])

    text = failure_summary("own", "/store", error, standing, {"encode[a/1]": TASK_RUN})

    assert text.startswith(
        "# own: failed\n\n**`encode[a/1]` failed** in 2.0 s. 2 artifacts of this run are in"
    )
    assert f"| task | `encode[a/1]` · [its logs](/v2/runs/task-run/{TASK_RUN}) |" in text
    assert "| problem | encode\\[a/1\\]: a/\\*.jsonl, line 7: no text |" in text
    assert "| fix | set on\\_error |" in text
    assert "`DocumentError`: A document that breaks its source's rules" in text
    assert "| encode[*] | 1 of 3 | cached |  |" in text
    assert "`mix`, `pack`" in text
    assert "finds the 2 artifacts above, and goes on with `encode[a/1]`" in text
    assert "Also failed" not in text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (failed(SourceError("s: no files; name some")), "fails again: do what the message says first"),
        (failed(MachineError("count: memory ran out; add some"), "count[a/0]"), "what it lacked"),
        (failed(TimeoutError("slow"), "count[a/0]"), "it is worth a try as it is"),
        (failed(ZeroDivisionError("by 0"), "train"), "nobody foresaw"),
    ],
)
def test_what_a_retry_does_depends_on_the_kind_of_fault(error: RunError, says: str) -> None:
    assert says in failure_summary("own", "/store", error, Standing(), {})


def test_a_failed_gate_has_its_limits() -> None:
    row = {"limit": "max_fertility", "subject": "hi", "value": 2.51234, "threshold": 2.0, "passed": False}
    error = GateError("audit: the gate failed; raise the limit", "failed: 1 of 3 limits", [row])

    text = failure_summary("own", "/store", error, Standing(), {})

    assert "| max_fertility | hi | 2.512 | 2 | no |" in text
    assert text.count("`audit` failed") == 1


def test_a_refused_profile_says_each_problem() -> None:
    text = refusal_summary("own.toml", ProfileError("profile 'own':\nunknown key a; did you mean b?"))

    assert text.startswith("# own.toml: refused")
    assert "- unknown key a; did you mean b?" in text
