"""What a person reads in Prefect's pages: names of runs, progress, links, and why something was made."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest

from tests.test_flows.jobs import job
from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.flows.errors import ProfileError, RunError
from tokmill.flows.prefect.artifact_page import Links, sheet
from tokmill.flows.prefect.run_page import failure_summary, refusal_summary, why_made
from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.profile.fields import in_words
from tokmill.flows.results import RunRow
from tokmill.flows.run.dag import Step
from tokmill.flows.run.events import RunState
from tokmill.flows.run.target import name_of as named
from tokmill.tasks.core.errors import DocumentError, GateError, MachineError, SourceError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Provenance, Store
from tokmill.tasks.store.runs import Begun

WEIGHTS = [f"mix.weights.{name}=9.0" for name in ("latin", "cyrillic", "cjk")]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], []),
        (["balance.temperature=5.0"], ["temperature 5"]),
        (["mix.temperature=3.0", "mix.method=temperature"], ["mix method temperature", "mix temperature 3"]),
        (
            ["pack.sequence_length=2048", "train.vocab_size=1200"],
            ["vocab size 1,200", "sequence length 2,048"],
        ),
        (["train.vocab_size=1000"], []),  # as the profile has it
        (["pack.strategy=concat", "execution.workers=1"], []),  # the default; and what changes no result
        (["mix.weights.cjk=4.0"], ["mix weights cjk 4"]),
        (
            [*WEIGHTS, "train.vocab_size=900"],
            ["vocab size 900", "mix weights latin 9", "mix weights cyrillic 9", "1 more"],
        ),
    ],
)
def test_a_run_is_named_by_what_differs_from_its_profile(overrides, words):
    profile = load_profile("smoke", overrides)
    assert in_words(profile.changed, Profile) == words
    told = ['mlflow.tracking_uri="http://x"', 'openlineage.to="file:e.jsonl"', 'experiment.name="e"']
    assert named(load_profile("smoke", [*told, *overrides])) == " · ".join(["smoke", *words])


def test_a_profile_that_is_whole_only_with_overrides_has_them_all_as_changes(tmp_path: Path):
    bare = tmp_path / "bare.toml"
    bare.write_text("[train]\nvocab_size = 1000\n")

    profile = load_profile(bare, [f'sources.own.files=["{tmp_path}/*.txt"]', "train.vocab_size=1000"])

    assert {change.field for change in profile.changed} == {"sources.own.files", "train.vocab_size"}


PAGE = "http://127.0.0.1:4200/runs/flow-run"


def links_of(store: Store, runs: Mapping[str, str]) -> Links:
    """What can be linked where a store has these runs, each with its page's folder."""
    for name, folder in runs.items():
        store.catalog.add_run(name, begun=Begun(name=f"{name} [a|b]", url=f"{folder}/{name}"))
    return Links(store, f"{PAGE}/this")


def test_a_sheet_has_what_a_person_asks_of_an_artifact_with_links_to_runs_of_this_server(tmp_path: Path):
    store = Store(tmp_path / "store")
    made = Provenance.collect(flow_run_id="run-1")
    texts = [
        store.realize(ask(f"shard/{index}", text="abc", times=index + 1), made).ref for index in range(3)
    ]
    ref = store.realize(ask_joined("all", *texts), Provenance.collect(flow_run_id="run-2")).ref
    links = links_of(store, {"run-1": PAGE, "run-2": PAGE, "run-3": "http://elsewhere/runs"})
    assert links.run("run-3") == links.run("unknown") == links.run(None) == ""

    text = sheet(RunRow("all", ref, "cached", 0.0, {}), links)

    assert text.startswith("## joined/all@v1\n\n**Reused**: made on ")
    assert " by [run-2 (a/b)](/v2/runs/flow-run/run-2) in " in text
    for line in (
        "| version | `v1` |",
        f"| content digest | `{ref.content_digest[:32]}` |",
        "| size | 24 B in 1 file |",
        f"| place | `{store.path(ref)}` |",
        f"| in a terminal | `tokmill show joined/all@v1 --store {store.root}` |",
        "| parts | 3 |",
        "| first | `text/shard/0@v1` | [run-1 (a/b)](/v2/runs/flow-run/run-1) |",
        "| rest | 2 × text | [run-1 (a/b)](/v2/runs/flow-run/run-1) |",
    ):
        assert line in text.splitlines()
    assert "| kept 1, end 1 |" in sheet(RunRow("one", texts[0], "made", 1.0, {}), links)


def test_why_something_was_made_is_what_differs_from_the_version_before(tmp_path: Path):
    store = Store(tmp_path / "store")
    first = store.realize(ask("one", text="abc")).ref
    assert why_made(store, first)[0] == "the first version of that name"
    second = store.realize(ask("one", text="abd")).ref
    assert why_made(store, second) == ("differs from v1", ["`text: abc → abd`"])
    store.realize(ask_joined("all", first, first))
    other = store.realize(ask_joined("all", second, second)).ref
    assert why_made(store, other)[1] == ["other first", "other rest"]


TASK_RUN = UUID(int=7)
STORE = Links(Store(Path("/store")))


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

    text = failure_summary("own", STORE, error, state, {"encode[a/1]": TASK_RUN}).data

    assert text.startswith("# own: failed\n\n**`encode[a/1]` failed** in 2.0 s. What was made is kept in")
    assert f"| task | `encode[a/1]` · [its logs](/v2/runs/task-run/{TASK_RUN}) |" in text
    assert "| problem | encode\\[a/1\\]: a/\\*.jsonl, line 7: no text |" in text
    assert "| fix | set on\\_error |" in text
    assert "`DocumentError`: A document that breaks its source's rules" in text
    assert "| encode[*] | 1 of 3 | cached |" in text
    assert "| `mix` |\n| `pack` |" in text
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
    assert says in failure_summary("own", STORE, error, RunState(), {}).data


def test_a_failed_gate_has_its_limits_and_its_report() -> None:
    row = {"limit": "max_fertility", "subject": "hi", "value": 2.51234, "threshold": 2.0, "passed": False}
    gate = "failed: 'hi': fertility=2.5 is above 2; 'sw': fertility=3 is above 2"
    error = GateError(f"audit: gate {gate}; look at it; raise the limit", gate, [row])
    ref = ArtifactRef(kind="audit", name="own", fingerprint="f" * 64, content_digest="c" * 64)
    rows = [RunRow("audit", ref, "made", 2.0, {}, 0.0)]
    state = state_of(rows, {"audit": 1}, "encode", "encode", "mix")
    state.refuse("audit", "")

    text = failure_summary("own", Links(Store(Path("/store")), reports="/reports"), error, state, {}).data

    assert "| max_fertility | hi | 2.512 | 2 | no |" in text
    assert text.count("`audit` failed") == 1
    assert "fertility=3 is above 2 |\n| fix | look at it; raise the limit |" in text
    assert f"[audit/own](/v2/artifacts/key/audit-own) · [Report](/reports/{'f' * 64})" in text
    assert "| audit | 1 | gate failed | 2.0 s |" in text
    assert "| `encode` |\n| `mix` |" in text


def test_a_sentence_with_semicolons_is_not_taken_apart() -> None:
    error = failed(MachineError("mix: 'a' gives 1; 'b' gives 2; or on_miss='warn'"), "mix")
    text = failure_summary("own", STORE, error, RunState(), {}).data
    assert "| problem | mix: mix: 'a' gives 1; 'b' gives 2; or on\\_miss='warn' |" in text


def test_a_refused_profile_says_each_problem() -> None:
    text = refusal_summary("own.toml", ProfileError("profile 'own':\nunknown key a; did you mean b?")).data

    assert text.startswith("# own.toml: refused")
    assert "- unknown key a; did you mean b?" in text
