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
    failed: str


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
    failed = tokmill("runs", "--json").document[0]["run_id"]
    return Made(tokmill, Store.open(store), profile, first.run_id, again.run_id, failed)


def read(made: Made, run_id: str) -> Run:
    return read_run(run_path(made.store.layout.runs, run_id))


def test_a_run_is_recorded_with_what_explains_it_and_what_it_had_also_if_it_failed(made: Made) -> None:
    run, again = (read(made, run_id) for run_id in (made.first, made.again))
    assert (run.state, run.name, run.profile, run.overrides) == ("completed", "tiny", "tiny", [])
    assert (run.started_by.how, run.machine.runner) == ("library", "threads")
    assert run.started_by.user == run.provenance.user
    assert {"numpy", "pyarrow", "tokmill"} <= set(run.packages)
    sources = [(each.role, each.name, each.num_files) for each in run.inputs]
    assert sources == [("source", "few", 2), ("source", "many", 3)]
    assert run.parameters["train"]["vocab_size"] == run.metrics["tokenizer.vocab_size"] == 600
    assert not any(name.startswith("encoded_shard") for name in run.metrics)
    assert all(each.seconds is not None and each.how == "made" for each in run.artifacts)
    record = made.store.record(run.artifacts[0].ref)
    assert record.provenance.run_id == run.provenance.run_id == made.first
    assert run.artifacts[0].peak_bytes == record.timings.peak_bytes

    assert (again.experiment, again.tags, again.notes, again.name) == ("e", ["base"], "again", "tiny")
    assert {each.field for each in again.overrides} == {
        f"experiment.{name}" for name in ("name", "tags", "notes")
    }
    assert {each.how for each in again.artifacts} == {"cached"}
    assert {each.ref for each in again.artifacts} == {each.ref for each in run.artifacts}
    assert run.metrics == again.metrics

    failed = read(made, made.failed)
    assert (failed.state, "vocab_size=99999" in failed.message) == ("failed", True)
    changes = [(each.field, each.before, each.after) for each in failed.overrides]
    assert changes == [("train.vocab_size", 600, 99_999)]
    had = {each.ref.kind for each in failed.artifacts}
    assert had & {"corpus", "counts", "balance", "tokenizer"} == {"corpus", "counts", "balance"}
    assert (len(failed.inputs), failed.metrics["corpus.num_files"]) == (2, 5)


def test_runs_are_listed_filtered_and_sorted(made: Made) -> None:
    """More of filters and orders is in tests/test_tasks/test_run_records.py."""
    shown = made.tokmill("runs", COLUMNS="160").out
    assert [line.split()[0] for line in shown.splitlines()[2:]] == [
        run_id[:8] for run_id in (made.failed, made.again, made.first)
    ]
    assert "tiny · vocab size 99,999   failed" in shown
    for options, wanted in (
        (("--experiment", "e"), [made.again]),
        (("--tag", "base"), [made.again]),
        (("--state", "failed"), [made.failed]),
        (("--sort", "audit.bytes_per_token", "--best", "5"), [made.again, made.first]),
        (("--sort", "train.vocab_size", "--limit", "1"), [made.failed]),
        (("--since", "1h", "--profile", "tiny"), [made.failed, made.again, made.first]),
        (("--since", "2999-01-01"), []),
    ):
        assert [row["run_id"] for row in made.tokmill("runs", "--json", *options).document] == wanted
    for options, said in (
        (("--experiment", "E"), "no run has the experiment 'E'; runs have: e"),
        (("--tag", "bas"), "no run has the tag 'bas'; did you mean base?"),
        (("--experiment", "e", "--state", "failed"), "no run is like that"),
    ):
        done = made.tokmill("runs", *options)
        assert (done.code, said in done.err) == (0, True)


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


def test_ids_that_begin_alike_are_shown_as_far_as_they_differ(tokmill: Tokmill) -> None:
    for run_id in ("01a219e3-5b1c-7aaa", "01a219e3-5b1c-7abb", "ffff0000-0000-7000"):
        Store.open(tokmill.store).catalog.add_run(run_id)
    shown = sorted(line.split()[0] for line in tokmill("runs").out.splitlines()[2:])
    assert shown == ["01a219e3-5b1c-7aa", "01a219e3-5b1c-7ab", "ffff0000"]
    assert tokmill("runs", "show", shown[1], "--json").document["run_id"] == "01a219e3-5b1c-7abb"
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
    for words in ("winner", "the one of the paper", "from Python", "peak memory", "balance.temperature"):
        assert words in out
    document = made.tokmill("runs", "show", made.first, "--json").document
    assert document["tags"] == ["winner"]
    assert [remark["action"] for remark in document["remarks"]] == ["tag", "tag", "untag", "note"]
    (train,) = [stage for stage in document["stages"] if stage["stage"] == "train"]
    assert (train["num_made"], train["seconds"] > 0) == (1, True)
