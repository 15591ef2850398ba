"""Runs of profiles: what is recorded of them, however they end, and what `tokmill runs` says of them."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_flows.commands import InThisProcess, Tokmill, clean_environment
from tests.test_flows.corpora import write_project
from tokmill.flows.errors import RunError
from tokmill.flows.library import api
from tokmill.tasks.store import Run, Store
from tokmill.tasks.store.runs import read_run, run_path


class Made(NamedTuple):
    """A store with a run that made all, one of an experiment that found all, and a failed one."""

    tokmill: Tokmill
    store: Store
    profile: Path
    first: str
    again: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("runs")
    write_project(folder, num_documents=20)
    profile, store = folder / "tiny.toml", folder / "store"
    first = api.run(profile, store=store, prefect=False)
    overrides = {"experiment.name": "e", "experiment.tags": ["base"], "experiment.notes": "again"}
    again = api.run(profile, store=store, prefect=False, overrides=overrides)
    with pytest.raises(RunError):
        api.run(profile, store=store, prefect=False, overrides={"train.vocab_size": 99_999})
    tokmill = InThisProcess(folder, clean_environment())
    return Made(tokmill, Store.open(store), profile, first.run_id, again.run_id)


def read(made: Made, run_id: str) -> Run:
    return read_run(run_path(made.store.layout.runs, run_id))


def failed_run(made: Made) -> Run:
    (row,) = made.store.catalog.query("SELECT run_id FROM runs WHERE state = 'failed'")
    return read(made, row["run_id"])


def test_a_run_is_recorded_with_what_explains_it(made: Made) -> None:
    run = read(made, made.first)

    assert (run.state, run.name, run.profile, run.overrides) == ("completed", "tiny", "tiny", [])
    assert (run.started_by.how, run.machine.runner) == ("library", "threads")
    assert run.started_by.user == run.provenance.user
    assert run.provenance.run_id == made.first
    assert {"numpy", "pyarrow", "tokmill"} <= set(run.packages)
    assert [(each.role, each.name, each.num_files) for each in run.inputs] == [
        ("source", "few", 2),
        ("source", "many", 3),
    ]
    assert run.parameters["train"]["vocab_size"] == 600
    assert run.metrics["tokenizer.vocab_size"] == 600
    assert not any(name.startswith("encoded_shard") for name in run.metrics)
    assert all(each.seconds is not None and each.how == "made" for each in run.artifacts)
    record = made.store.record(run.artifacts[0].ref)
    assert record.provenance.run_id == made.first
    assert run.artifacts[0].peak_bytes == record.timings.peak_bytes


def test_an_experiment_groups_runs_and_changes_no_fingerprint(made: Made) -> None:
    run = read(made, made.again)

    assert (run.experiment, run.tags, run.notes) == ("e", ["base"], "again")
    assert run.name == "tiny"
    assert {each.field for each in run.overrides} == {
        "experiment.name",
        "experiment.tags",
        "experiment.notes",
    }
    assert {each.how for each in run.artifacts} == {"cached"}
    assert {each.ref for each in run.artifacts} == {each.ref for each in read(made, made.first).artifacts}
    assert run.metrics == read(made, made.first).metrics


def test_a_failed_run_keeps_what_it_had(made: Made) -> None:
    run = failed_run(made)

    assert "vocab_size=99999" in run.message
    assert [(each.field, each.before, each.after) for each in run.overrides] == [
        ("train.vocab_size", 600, 99_999)
    ]
    had = {each.ref.kind for each in run.artifacts}
    assert {"corpus", "counts", "balance"} <= had
    assert "tokenizer" not in had
    assert len(run.inputs) == 2
    assert run.metrics["corpus.num_files"] == 5


def test_runs_are_listed_filtered_and_sorted(made: Made) -> None:
    out = made.tokmill("runs", COLUMNS="160").out
    assert [line.split()[0] for line in out.splitlines()[2:]] == [
        run_id[:8] for run_id in (failed_run(made).run_id, made.again, made.first)
    ]
    assert "tiny · vocab size 99,999   failed" in out

    def ids(*options: str) -> list[str]:
        return [row["run_id"] for row in made.tokmill("runs", "--json", *options).document]

    assert ids("--experiment", "e") == ids("--tag", "base") == [made.again]
    assert ids("--state", "failed") == [failed_run(made).run_id]
    assert ids("--sort", "audit.bytes_per_token", "--best", "5") == [made.again, made.first]
    assert ids("--sort", "train.vocab_size", "--limit", "1") == [failed_run(made).run_id]
    assert ids("--sort", "train.vocab_size", "--lowest")[-1] == failed_run(made).run_id
    assert ids("--since", "1h") == ids("--profile", "tiny") == ids()
    assert ids("--since", "2999-01-01") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "runs"), "`tokmill runs` lists them"),
        (("runs", "--best", "1"), "--best needs --sort"),
        (("runs", "--sort", "train.vocab_size", "--best", "1"), "add --highest or --lowest"),
        (("runs", "--sort", "audit.bytes_per_tokn"), "did you mean audit.bytes_per_token"),
        (("runs", "--since", "yesterday"), "use e.g. 7d"),
        (("runs", "show", "tinny"), "did you mean 'tiny'"),
        (("runs", "tag", "latest", "two words"), "it must match"),
        (("runs", "note", "latest", " "), "a note has from 1"),
    ],
)
def test_wrong_usage_says_what_is_right(made: Made, arguments: tuple[str, ...], said: str) -> None:
    done = made.tokmill(*arguments)
    assert (done.code, said in done.err) == (2, True), done.err


def test_a_name_that_no_run_has_is_said_with_those_that_runs_have(made: Made) -> None:
    for options, said in (
        (("--experiment", "E"), "no run has the experiment 'E'; runs have e"),
        (("--tag", "bas"), "no run has the tag 'bas'; runs have base"),
        (("--experiment", "e", "--state", "failed"), "no run is like that"),
    ):
        done = made.tokmill("runs", *options)
        assert (done.code, said in done.err) == (0, True)


def test_ids_that_begin_alike_are_shown_as_far_as_they_differ(tokmill: Tokmill) -> None:
    store = Store.open(tokmill.store)
    for run_id in ("01a219e3-5b1c-7aaa", "01a219e3-5b1c-7abb", "ffff0000-0000-7000"):
        store.catalog.add_run(run_id)

    shown = [line.split()[0] for line in tokmill("runs").out.splitlines()[2:]]

    assert sorted(shown) == ["01a219e3-5b1c-7aa", "01a219e3-5b1c-7ab", "ffff0000"]
    for each in shown:
        assert tokmill("runs", "show", each, "--json").document["run_id"].startswith(each)
    assert "use more of the id, or the run's name" in tokmill("runs", "show", "01a219e3").err


def test_a_name_does_not_steer_the_terminal(made: Made) -> None:
    name = {"experiment.name": "red \x1b[31m\x07\x9b2J\u202edeb"}
    api.run(made.profile, store=made.store.root, prefect=False, overrides=name)
    for command in ("runs", "runs show latest", f"compare latest {made.first}", "runs --experiment x"):
        done = made.tokmill(*command.split(), COLUMNS="160")
        assert r"red \x1b[31m\x07\x9b2J\u202edeb" in done.out + done.err
        assert not set(done.out + done.err) & set("\x1b\x07\x9b")


def test_one_run_is_shown_tagged_and_noted(made: Made) -> None:
    assert made.tokmill("runs", "tag", made.first, "winner", "paper").code == 0
    assert "tagged winner" in made.tokmill("runs", "tag", made.first, "paper", "--remove").out
    assert made.tokmill("runs", "note", "tokenizer/tiny@v1", "the one of the paper").code == 0
    out = made.tokmill("runs", "show", made.first[:10], "--parameters", COLUMNS="160").out
    for words in (
        "winner",
        "the one of the paper",
        "from Python",
        "peak memory",
        "balance.temperature",
        "many",
    ):
        assert words in out
    document = made.tokmill("runs", "show", made.first, "--json").document
    assert document["tags"] == ["winner"]
    assert [remark["action"] for remark in document["remarks"]] == ["tag", "tag", "untag", "note"]
    (train,) = [stage for stage in document["stages"] if stage["stage"] == "train"]
    assert (train["num_made"], train["seconds"] > 0) == (1, True)
