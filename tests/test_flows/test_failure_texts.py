"""The summary of a run that failed: what a person reads of it in Prefect's pages."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.test_flows.test_execution import job
from tests.test_tasks.store_stages import ask
from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.prefect.failure_page import failure_summary, refusal_summary
from tokmill.flows.prefect.links import Links
from tokmill.flows.results import RunRow
from tokmill.flows.run.dag import Step
from tokmill.flows.run.events import RunState
from tokmill.tasks.core.errors import DocumentError, GateError, MachineError, SourceError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store

TASK_RUN = UUID(int=7)
STORE = Links("/store")


def state_of(rows: list[RunRow], num_tasks: dict[str, int], *not_begun: str) -> RunState:
    """Return what a run has done whose first job has these rows."""
    state, first = RunState(), job("first")
    state.jobs = [first, *map(job, not_begun)]
    for group, number in num_tasks.items():
        state.expect(group, number)
    begun = state.begin(first)
    begun.rows = dict(enumerate(rows))
    begun.steps = [Step(first.stage, row.task, "test", first.params, {}) for row in rows]
    for row in rows:
        state.finish(row)
    return state


def failed(error: Exception, title: str | None = None) -> RunError:
    """Return the error of a run whose task failed."""
    failure = RunError(f"{title}: {error}" if title else str(error), title)
    failure.__cause__ = error
    return failure


def test_a_failed_task_is_named_with_its_problem_fix_and_what_is_kept(tmp_path: Path) -> None:
    ref = Store.open(tmp_path).realize(ask("one")).ref
    rows = [RunRow("ingest", ref, "made", 2.0, {}, 0.0), RunRow("encode[a/0]", ref, "cached", 0.0, {}, 2.0)]
    error = failed(DocumentError("a/*.jsonl, line 7: no text; set on_error"), "encode[a/1]")
    state = state_of(rows, {"ingest": 1, "encode[*]": 3}, "mix", "pack")

    text = failure_summary("own", STORE, error, state, {"encode[a/1]": TASK_RUN})

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
    assert says in failure_summary("own", STORE, error, RunState(), {})


def test_a_failed_gate_has_its_limits_and_its_report() -> None:
    row = {"limit": "max_fertility", "subject": "hi", "value": 2.51234, "threshold": 2.0, "passed": False}
    gate = "failed: 'hi': fertility=2.5 is above 2; 'sw': fertility=3 is above 2"
    error = GateError(f"audit: gate {gate}; look at it; raise the limit", gate, [row])
    ref = ArtifactRef(kind="audit", name="own", fingerprint="f" * 64, content_digest="c" * 64)
    rows = [RunRow("audit", ref, "made", 2.0, {}, 0.0)]
    state = state_of(rows, {"audit": 1}, "encode", "encode", "mix")

    text = failure_summary("own", Links("/store", reports="/reports"), error, state, {})

    assert "| max_fertility | hi | 2.512 | 2 | no |" in text
    assert text.count("`audit` failed") == 1
    assert "fertility=3 is above 2 |\n| fix | look at it; raise the limit |" in text
    assert f"[audit/own](/v2/artifacts/key/audit-own) · [Report](/reports/{'f' * 64})" in text
    assert "| audit | 1 | gate failed | 2.0 s |" in text
    assert "`encode`, `mix`" in text


def test_a_sentence_with_semicolons_is_not_taken_apart() -> None:
    error = failed(MachineError("mix: 'a' gives 1; 'b' gives 2; or on_miss='warn'"), "mix")
    text = failure_summary("own", STORE, error, RunState(), {})
    assert "| problem | mix: mix: 'a' gives 1; 'b' gives 2; or on\\_miss='warn' |" in text


def test_a_refused_profile_says_each_problem() -> None:
    text = refusal_summary("own.toml", ProfileError("profile 'own':\nunknown key a; did you mean b?"))

    assert text.startswith("# own.toml: refused")
    assert "- unknown key a; did you mean b?" in text
