"""`--refresh STAGE` makes a stage's artifacts again, and `--until KIND` makes a part of the DAG."""

from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.corpora import write_project
from tokmill.flows.errors import RunError, UsageError
from tokmill.flows.library.api import plan, run
from tokmill.flows.results import RunResult
from tokmill.tasks.core.stage import External, Outcome, Params, Request, Stage
from tokmill.tasks.store import Store


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refreshing")
    write_project(folder, num_documents=40)
    again(folder)
    return folder


def again(project: Path, **given: Any) -> RunResult:
    return run(project / "tiny.toml", store=project / "store", prefect=False, workers=1, **given)


def made(result: RunResult) -> set[str]:
    return {row.task.partition("[")[0] for row in result.rows if row.how == "made"}


def test_a_refreshed_stage_is_made_again_and_what_follows_stays(project: Path) -> None:
    before = again(project)

    result = again(project, refresh=["train", "encode"])

    assert made(before) == set()
    assert made(result) == {"train", "encode"}
    assert result.refs == before.refs


def test_the_record_of_what_comes_out_equal_stays(project: Path) -> None:
    store, before = Store.open(project / "store"), again(project)
    record = store.record(before.refs["tokenizer"])

    result = again(project, refresh=["train"])

    assert store.record(result.refs["tokenizer"]) == record
    assert store.verify() == []


def test_no_stage_of_that_name(project: Path) -> None:
    with pytest.raises(UsageError, match=r"refresh='trian' is not a stage; did you mean train\?"):
        again(project, refresh=["trian"])


def test_until_makes_what_a_kind_needs_and_nothing_else(tmp_path: Path) -> None:
    write_project(tmp_path, num_documents=20)

    result = again(tmp_path, until=["tokenizer"])

    assert made(result) == {"ingest", "count", "balance", "train"}
    assert result.refs.keys() == {"corpus", "counts", "balance", "tokenizer"}
    rows = plan(tmp_path / "tiny.toml", until=["tokenizer"], store=tmp_path / "store")
    assert {row.action for row in rows} == {"cached"}


def test_until_a_kind_that_the_run_does_not_make(project: Path) -> None:
    with pytest.raises(RunError, match="until='tokeniser': the run makes no such artifact; it makes corpus"):
        again(project, until=["tokeniser"])


def write_next(params: Params, *, out: Path, counter: Path) -> Outcome:
    """A stage that breaks the rules: it writes another number each time."""
    number = int(counter.read_text()) + 1
    counter.write_text(str(number))
    (out / "number").write_text(str(number))
    return Outcome(metrics={})


def test_what_comes_out_different_is_published_and_the_old_one_set_aside(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    stage = Stage("odd", "odd", "odd", 1, Params, write_next)
    request = Request(
        stage, "x", Params(), {"counter": External(digest="0" * 64, value=tmp_path / "counter")}
    )
    store, said = Store.open(tmp_path / "store"), list[str]()
    first = store.realize(request).ref

    second = store.realize(request, report=said.append, refresh=True)

    assert second.how == "made"
    assert (store.path(second.ref) / "number").read_text() == "2"
    assert first.fingerprint == second.ref.fingerprint
    (aside,) = (tmp_path / "store" / "damaged" / "odd").iterdir()
    assert (aside / "number").read_text() == "1"
    assert "was made again with other content" in said[0]
