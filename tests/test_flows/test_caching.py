"""Which tasks of a run are cached, and which are made again.

A rerun makes nothing; a change makes only what depends on it; a killed run loses only the running shards.
"""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_flows.corpora import words, write_jsonl, write_project
from tests.test_flows.jobs import digests
from tokmill.flows.library import api
from tokmill.flows.profile import load_profile
from tokmill.flows.run.direct import reused
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine, num_bytes
from tokmill.flows.run.target import Target
from tokmill.tasks.store import Store

TRAINED = {"train", "audit", "audit.counts", "encode", "usage", "tokenizer_card", "mix", "pack", "card"}
"""The stages that depend on the settings of training alone."""


def made(document: dict[str, Any]) -> set[str]:
    """The tasks that did work."""
    return {task["task"] for task in document["tasks"] if task["how"] == "made"}


def stages(tasks: set[str]) -> set[str]:
    """`encode[many/3]` → `encode`."""
    return {task.partition("[")[0] for task in tasks}


def to_run(tokmill: Tokmill, *arguments: str) -> set[str]:
    """The stages that a run would do."""
    tasks = tokmill("plan", "tiny.toml", "--json", *arguments).document["tasks"]
    return stages({task["task"] for task in tasks if task["action"] == "run"})


def setting(*settings: str) -> list[str]:
    return [word for each in settings for word in ("--set", each)]


def test_neither_a_second_run_nor_touched_or_moved_files_make_anything(project: Tokmill, tmp_path) -> None:
    again = project.run("tiny.toml")
    assert again["num_cached"] == again["num_tasks"] > 20
    os.utime(project.folder / "many" / "part-1.jsonl", (2e9, 2e9))
    assert to_run(project) == set()
    moved = project.at(project.folder.rename(tmp_path / "elsewhere"))
    assert made(moved.run("tiny.toml")) == set()
    for family in ("char_bpe", "wordpiece", "unigram", "word_bpe", "longest_match"):
        chosen = setting(f"train.family={family}", "train.vocab_size=400")
        assert to_run(moved, *chosen) == TRAINED
    tasks = to_run(moved, *setting("train.family=unigram", "train.mode=sentencepiece"))
    assert tasks & {"count", "ingest", "balance"} == {"count"}


CURRICULUM = 'mix.curriculum.difficulty=["noise", "perplexity"]'


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["pack.sequence_length=64"], {"pack", "card"}),
        ([CURRICULUM], {"score", "fit", "mix", "pack", "card"}),
        (["balance.temperature=5.0", "train.vocab_size=500"], {"balance", *TRAINED}),
    ],
)
def test_a_change_makes_what_depends_on_it_alone(project: Tokmill, settings, expected: set[str]) -> None:
    assert stages(made(project.run("tiny.toml", *setting(*settings)))) == expected
    assert to_run(project, *setting(*settings)) == set()
    if CURRICULUM in settings:  # another schedule scores no document again
        another = to_run(project, *setting(*settings, "mix.warmup={few = {stop = 0.5}}"))
        assert another == {"mix", "pack", "card"}


def test_a_run_goes_on_from_what_was_consumed(project: Tokmill) -> None:
    consumed = setting("replan.consumed_tokens=50000", "mix.weights.few=2.0")
    again = [*setting("replan.packed=packed/tiny@v1"), *consumed]
    assert stages(made(project.run("tiny.toml", *again))) == {"consume", "mix", "pack", "card"}
    assert to_run(project, *again) == set()
    refused = project("plan", "tiny.toml", *setting("replan.packed=packed/tiny"), *consumed)
    assert (refused.code != 0, "must name a version" in refused.err) == (True, True)


def test_more_text_is_counted_by_its_shards_alone(project: Tokmill) -> None:
    """A new document, and a new file; either may open a shard of its own."""
    with (project.folder / "many" / "part-1.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "new", "text": words(random.Random(9), 50)}) + "\n")
    tasks = made(project.run("tiny.toml", "--until", "counts"))
    write_jsonl(project.folder / "many" / "part-9.jsonl", 20, seed=9)
    for each in (tasks, made(project.run("tiny.toml", "--until", "counts"))):
        counted = {task for task in each if task.startswith("count[")}
        assert 1 <= len(counted) <= 2
        assert all(task.startswith("count[many/") for task in counted)
        assert "ingest" in each


def test_what_is_deleted_or_damaged_is_made_again_and_nothing_else(project: Tokmill, monkeypatch) -> None:
    monkeypatch.chdir(project.folder)
    before, profile = digests(project.store), load_profile("tiny.toml")
    machine = Machine.of(profile.execution, store=str(project.store))
    unchanged = partial(reused, profile, Target(), machine, RunState())
    shutil.rmtree(next(project.store.glob("packed/*")))
    tokens = min(project.store.glob("encoded_shard/*/tokens.npy"))
    tokens.write_bytes(tokens.read_bytes()[:-2])
    shard = next(project.store.glob("packed_shard/*/shard-*.bin"))
    shard.write_bytes(shard.read_bytes()[:-2])
    assert unchanged() is None
    assert stages(made(project.run("tiny.toml"))) == {"encode", "pack"}
    assert digests(project.store) == before
    assert list(project.store.glob("damaged/encoded_shard/*"))


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_makes_the_same(finished_project: Tokmill, tmp_path, workers: int, monkeypatch):
    monkeypatch.chdir(finished_project.folder)
    result = api.run("tiny.toml", store=tmp_path, workers=workers, prefect=False)
    assert result.num_made == len(result.rows) > 20
    assert digests(tmp_path) == digests(finished_project.store)


def test_a_refreshed_stage_is_made_again_and_until_makes_what_a_kind_needs(project: Tokmill) -> None:
    """What comes out equal keeps its record."""
    store = Store.open(project.store)
    before, record = digests(project.store), store.record(store.resolve("tokenizer/tiny"))
    refreshed = project.run("tiny.toml", "--refresh", "train", "--refresh", "encode")
    assert stages(made(refreshed)) == {"train", "encode"}
    assert digests(project.store) == before
    assert store.record(store.resolve("tokenizer/tiny")) == record
    done = project.run("tiny.toml", "--until", "tokenizer", *setting("train.vocab_size=500"))
    assert stages(made(done)) == {"train"}
    assert stages({task["task"] for task in done["tasks"]}) == {"ingest", "count", "balance", "train"}
    for option, word, said in (
        ("--refresh", "trian", "refresh='trian' is not a stage; did you mean train?"),
        ("--until", "tokeniser", "until='tokeniser': the run makes no such artifact; it makes corpus"),
    ):
        assert said in project("run", "tiny.toml", option, word).err


@pytest.mark.parametrize("until", ["", "tokenizer", *(pytest.param(kind, marks=pytest.mark.slow)
                         for kind in ("counts", "encoded"))])  # fmt: skip
def test_each_command_that_a_run_prints_works(project: Tokmill, until: str) -> None:
    """Also after a cached run, whose own artifacts are not the newest: half of theirs is its own length."""
    project.run("tiny.toml", *setting("pack.sequence_length=256"))
    done = project("run", "tiny.toml", *(("--until", until) if until else ()), COLUMNS="300")
    lines = done.out.rpartition("\n\n")[2].splitlines()
    commands = [shlex.split(line.partition("  ")[0]) for line in lines if line.startswith("tokmill ")]
    assert commands
    assert until or ["tokmill", "lineage", "packed/tiny@v1"] in commands
    for _, *arguments in commands:
        if arguments[0] == "run":  # the rest is cached
            assert {"pack"} <= stages(made(project(*arguments, "--json").document)) <= {"pack", "card"}
        else:
            said = project(*arguments)
            assert (said.code, bool(said.out)) == (0, True), said.err
            is_card = arguments[1].startswith("card/")
            assert not is_card or "| many |" in said.out  # the composition, not its record


@pytest.mark.slow
def test_a_killed_run_costs_the_shards_in_flight(project: Tokmill, prefect_server: dict[str, str]) -> None:
    project = Tokmill(project.folder, prefect_server, forks=True)
    undisturbed, total = digests(project.store), len(list(project.store.glob("encoded_shard/*")))
    shutil.rmtree(project.store)

    def encoded() -> int:
        return len(list(project.store.glob("encoded_shard/*/record.json")))

    process = project.start("run", "tiny.toml", "--workers", "1")
    while process.poll() is None and encoded() < 3:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    survived = encoded()
    again = project.run("tiny.toml", PYTHONHASHSEED="1")

    assert 3 <= survived < total, "the run was not killed in the middle of encode"
    assert len([task for task in made(again) if task.startswith("encode[")]) == total - survived
    assert digests(project.store) == undisturbed
    assert not list((project.store / ".tmp").glob("*"))
    states = {}
    for path in (project.store / "runs").glob("*.json"):
        run = json.loads(path.read_bytes())
        url = f"{project.environment['PREFECT_API_URL']}/flow_runs/{run['run_id']}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            states[run["state"]] = json.load(answer)["state_type"]
    assert states == {"crashed": "CRASHED", "completed": "COMPLETED"}


@pytest.mark.slow
def test_a_training_takes_no_more_memory_than_its_plan_says(tmp_path: Path) -> None:
    tokmill, profile = Tokmill(tmp_path, clean_environment()), write_project(tmp_path)
    tokmill.run(profile, "--no-prefect", "--until", "counts", "--until", "balance")
    (said,) = re.findall(r"needs at most about (\S+ \S+) of memory", tokmill("plan", profile).out)
    tokmill.run(profile, "--no-prefect", "--until", "tokenizer")
    store = Store.open(tokmill.store)
    peak = store.record(store.resolve("tokenizer/tiny")).timings.peak_bytes
    assert peak is not None
    assert 0.4 * num_bytes(said) < peak <= num_bytes(said)
