"""Runs from end to end: which tasks are cached, and which run again.

A rerun makes nothing; a change makes only what depends on it; machine settings change no byte; a killed run
loses only the running shards.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import Tokmill, finished
from tests.test_flows.corpora import words, write_jsonl


def made(document: dict[str, Any]) -> set[str]:
    """The tasks that did work."""
    return {task["task"] for task in document["tasks"] if task["how"] == "made"}


def stages(tasks: set[str]) -> set[str]:
    """`encode[many/3]` → `encode`."""
    return {task.partition("[")[0] for task in tasks}


def records(store: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """All records of a store by (kind, fingerprint)."""
    found = (json.loads(path.read_bytes()) for path in store.glob("*/*/record.json"))
    return {(record["kind"], record["fingerprint"]): record for record in found}


def digests(store: Path) -> dict[tuple[str, str], str]:
    """The content digest of every artifact."""
    return {key: record["content_digest"] for key, record in records(store).items()}


def run_states(tokmill: Tokmill) -> dict[str, str]:
    """Return the states of a store's runs, in the store and at Prefect's server."""
    states = {}
    for path in (tokmill.store / "runs").glob("*.json"):
        run = json.loads(path.read_bytes())
        held = f"{tokmill.environment['PREFECT_API_URL']}/flow_runs/{run['run_id']}"
        with urllib.request.urlopen(held, timeout=30) as answer:
            states[run["state"]] = json.load(answer)["state_type"]
    return states


def test_a_second_run_finds_everything_cached(project: Tokmill) -> None:
    again = project.run("tiny.toml")

    assert made(again) == set()
    assert again["num_cached"] == again["num_tasks"] > 20


def test_the_plan_of_a_finished_project_has_nothing_to_run(project: Tokmill) -> None:
    assert project("plan", "tiny.toml", "--json").document["num_to_run"] == 0


def test_another_sequence_length_packs_and_writes_the_card_again(project: Tokmill) -> None:
    planned = project("plan", "tiny.toml", "--json", "--set", "pack.sequence_length=64").document
    changed = project.run("tiny.toml", "--set", "pack.sequence_length=64")

    assert stages(made(changed)) == {"pack", "card"}
    plan_row = next(task for task in planned["tasks"] if task["task"] == "pack[plan]")
    assert plan_row["details"] == ["params.sequence_length: 128 → 64"]


def test_another_temperature_reads_no_text_for_counts(project: Tokmill) -> None:
    changed = project.run("tiny.toml", "--set", "balance.temperature=5.0")

    assert stages(made(changed)).isdisjoint({"ingest", "count"})
    assert {"balance", "train"} <= stages(made(changed))


def to_run(tokmill: Tokmill, *arguments: str) -> set[str]:
    """The tasks that a run would do."""
    tasks = tokmill("plan", "tiny.toml", "--json", *arguments).document["tasks"]
    return {task["task"] for task in tasks if task["action"] == "run"}


@pytest.mark.parametrize(
    ("family", "title"),
    [
        ("word_level", "Word-level"),
        ("character_level", "Character-level"),
        pytest.param("unigram", "Unigram", marks=pytest.mark.slow),
        pytest.param("wordpiece", "WordPiece", marks=pytest.mark.slow),
        pytest.param("word_bpe", "BPE over words", marks=pytest.mark.slow),
        pytest.param("char_bpe", "BPE over characters", marks=pytest.mark.slow),
    ],
)
def test_a_profile_trains_a_tokenizer_of_another_family(project: Tokmill, family: str, title: str) -> None:
    chosen = ["--set", f"train.family={family}", "--set", 'mix.curriculum.difficulty=["noise"]']
    done = project.run("smoke", *chosen)

    found = {
        record["kind"]: record for record in records(project.store).values() if record["name"] == "smoke"
    }
    assert {"train", "encode", "audit", "score", "pack", "card"} <= stages(made(done))
    assert found["audit"]["metrics"]["unknown_share"] > 0
    exports = found["tokenizer"]["metrics"]["exports"].split(", ")
    assert ("huggingface" in exports) == (family != "char_bpe")
    cards = "".join(card.read_text() for card in project.store.glob("card/*/card.md"))
    assert f"{title}, trained on these sources" in cards
    assert "becomes `[UNK]` and is lost" in cards
    encoded = project("encode", "--tokenizer", "tokenizer/smoke", "und \U000f0000", "--json").document
    assert 0 in encoded["ids"]
    assert project("store", "verify").code == 0


@pytest.mark.slow
def test_a_profile_trains_a_tokenizer_that_knows_every_byte(project: Tokmill) -> None:
    done = project.run("smoke", "--set", "train.family=longest_match")

    assert {"train", "encode", "audit", "pack", "card"} <= stages(made(done))
    cards = [path.read_text() for path in project.store.glob("card/*/card.md")]
    (card,) = (card for card in cards if "Longest match, trained on these sources" in card)
    assert "is lost" not in card
    made_now = [found for found in records(project.store).values() if found["name"] == "smoke"]
    (record,) = (found for found in made_now if found["kind"] == "tokenizer")
    assert record["metrics"]["exports"] == "rwkv"
    assert project("store", "verify").code == 0


def test_another_family_runs_what_depends_on_it_alone(project: Tokmill) -> None:
    trained = {"train", "encode", "audit", "usage", "tokenizer_card", "mix", "pack", "card"}
    for family in ("char_bpe", "wordpiece", "unigram", "word_bpe", "longest_match"):
        tasks = to_run(project, "--set", f"train.family={family}", "--set", "train.vocab_size=400")
        assert stages(tasks) == trained


@pytest.mark.parametrize("family", [pytest.param("char_bpe", marks=pytest.mark.slow), "unigram"])
def test_a_sentencepiece_model_is_trained_of_the_same_corpus(project: Tokmill, family: str) -> None:
    chosen = ["--set", f"train.family={family}", "--set", "train.mode=sentencepiece"]
    small = ["--set", "train.vocab_size=300", "--set", "train.allow_smaller=true"]
    tasks = to_run(project, *chosen, *small)
    assert stages(tasks).isdisjoint({"ingest", "balance"})
    assert {"count", "train", "encode", "audit", "card"} <= stages(tasks)

    project.run("tiny.toml", *chosen, *small)
    found = (record for record in records(project.store).values() if record["kind"] == "tokenizer")
    assert any("sentencepiece" in record["metrics"]["exports"] for record in found)
    cards = [path.read_text() for path in project.store.glob("tokenizer_card/*/card.md")]
    (card,) = (card for card in cards if "| mode | `sentencepiece` |" in card and f"`{family}`" in card)
    assert "split_pattern" not in card
    assert project("store", "verify").code == 0


def test_another_schedule_scores_no_document_again(project: Tokmill) -> None:
    curriculum = ["--set", 'mix.curriculum.difficulty=["noise", "perplexity"]']
    changed = project.run("tiny.toml", *curriculum)

    assert stages(made(changed)) == {"score", "fit", "mix", "pack", "card"}
    another = to_run(project, *curriculum, "--set", "mix.warmup={few = {stop = 0.5}}")
    assert stages(another) == {"mix", "pack", "card"}


def test_a_run_goes_on_from_what_was_consumed(project: Tokmill) -> None:
    consumed = ["--set", "replan.consumed_tokens=50000", "--set", "mix.weights.few=2.0"]
    again = ["--set", "replan.packed=packed/tiny@v1", *consumed]
    changed = project.run("tiny.toml", *again)

    assert stages(made(changed)) == {"consume", "mix", "pack", "card"}
    assert to_run(project, *again) == set()
    refused = project("plan", "tiny.toml", "--set", "replan.packed=packed/tiny", *consumed)
    assert refused.code != 0
    assert "must name a version" in refused.err


def test_touching_a_source_file_runs_nothing(project: Tokmill) -> None:
    os.utime(project.folder / "many" / "part-1.jsonl", (2e9, 2e9))

    assert made(project.run("tiny.toml")) == set()


def test_a_moved_project_runs_nothing(project: Tokmill, tmp_path: Path) -> None:
    moved = project.folder.rename(tmp_path / "elsewhere")

    assert made(project.at(moved).run("tiny.toml")) == set()


def test_one_more_document_runs_its_shard_and_what_follows(project: Tokmill) -> None:
    path = project.folder / "many" / "part-1.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "new", "text": words(random.Random(9), 50)}) + "\n")

    tasks = made(project.run("tiny.toml"))

    counted = {task for task in tasks if task.startswith("count[")}
    assert 1 <= len(counted) <= 2  # a new document may open a shard of its own
    assert all(task.startswith("count[many/") for task in counted)
    assert "ingest" in tasks


@pytest.mark.slow
def test_a_killed_run_costs_the_shards_in_flight(project: Tokmill, prefect_server: dict[str, str]) -> None:
    project = Tokmill(project.folder, prefect_server, forks=True)
    undisturbed = digests(project.store)
    total = sum(kind == "encoded_shard" for kind, _ in undisturbed)
    shutil.rmtree(project.store)

    process = project.start("run", "tiny.toml", "--workers", "1")
    while process.poll() is None and len(list(project.store.glob("encoded_shard/*/record.json"))) < 3:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    survived = {key for key in digests(project.store) if key[0] == "encoded_shard"}
    again = project.run("tiny.toml", PYTHONHASHSEED="1")

    assert total >= 8
    assert 3 <= len(survived) < total, "the run was not killed in the middle of encode"
    encoded_again = {task for task in made(again) if task.startswith("encode[")}
    assert len(encoded_again) == total - len(survived)
    assert digests(project.store) == undisturbed
    assert not list((project.store / ".tmp").glob("*"))
    assert run_states(project) == {"crashed": "CRASHED", "completed": "COMPLETED"}


@pytest.mark.slow
def test_two_runs_at_once_on_one_store_both_finish(project: Tokmill) -> None:
    shutil.rmtree(project.store)
    command = ("run", "tiny.toml", "--no-prefect", "--json")
    first = project.start(*command)
    second = project.start(*command, "--set", "pack.sequence_length=64")

    documents = [finished(process).document for process in (first, second)]

    rows = project("ls", "packed", "--all", "--json").document
    assert len({row["fingerprint"] for row in rows}) == 2
    for document in documents:
        ways = [document[f"num_{how}"] for how in ("made", "cached", "waited")]
        assert sum(ways) == document["num_tasks"] == len(document["tasks"])
    assert sum(document["num_made"] for document in documents) == len(records(project.store))
    listed = {row["fingerprint"] for row in project("ls", "--all", "--json").document}
    assert listed == {fingerprint for _, fingerprint in records(project.store)}
    assert {document["run_id"] for document in documents} == {
        path.stem for path in (project.store / "runs").glob("*.json")
    }


def test_an_artifact_that_is_deleted_is_made_again(project: Tokmill) -> None:
    before = digests(project.store)
    (packed,) = project.store.glob("packed/*")
    shutil.rmtree(packed)

    assert stages(made(project.run("tiny.toml"))) == {"pack"}
    assert digests(project.store) == before


def test_a_damaged_artifact_is_set_aside_and_made_again(project: Tokmill) -> None:
    before = digests(project.store)
    tokens = next(iter(sorted(project.store.glob("encoded_shard/*/tokens.npy"))))
    tokens.write_bytes(tokens.read_bytes()[:-2])

    assert stages(made(project.run("tiny.toml"))) == {"encode"}
    assert digests(project.store) == before
    assert list(project.store.glob("damaged/encoded_shard/*"))


def test_a_source_that_grows_by_a_file_keeps_the_shards_of_the_others(project: Tokmill) -> None:
    write_jsonl(project.folder / "many" / "part-9.jsonl", 20, seed=9)

    counted = {task for task in made(project.run("tiny.toml")) if task.startswith("count[")}

    assert 1 <= len(counted) <= 2
