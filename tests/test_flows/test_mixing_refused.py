"""Errors of mixing and packing that need tokens to be detected: place, value, rule and fix.

Nothing is published then, not even in part. Errors of profiles are in test_bad_input and test_profile.
"""

import re
import shutil
from pathlib import Path

import pytest

from tests.test_flows.corpora import PROFILE, write_jsonl
from tests.test_flows.in_process import InProcess
from tokmill.flows.errors import ProfileError
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import Store

LATER = ("mixture", "pack_plan", "packed_shard", "packed", "card")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project that has been run once; its store is in `store`."""
    folder = tmp_path_factory.mktemp("refused")
    for source in ("many", "few"):
        (folder / source).mkdir()
    write_jsonl(folder / "many" / "a.jsonl", 12, seed=1, num_words=40)
    (folder / "few" / "b.txt").write_text("one\n\ntwo words\n\nthree words here", encoding="utf-8")
    text = PROFILE.replace("vocab_size = 600", "vocab_size = 280").replace("max_repetition = 3.0", "")
    (folder / "tiny.toml").write_text(text.replace("few = 1.0", "few = 0.01"), encoding="utf-8")
    InProcess.at(folder / "store").run(folder / "tiny.toml")
    return folder


@pytest.fixture
def run(project: Path, tmp_path: Path) -> InProcess:
    """A copy of the project's store."""
    shutil.copytree(project / "store", tmp_path / "store")
    return InProcess.at(tmp_path / "store")


def artifacts(store: Store) -> list[str]:
    """Return the artifacts that depend on the encoding."""
    return sorted(path.name for kind in LATER for path in (store.root / kind).glob("*"))


def refusal(run: InProcess, project: Path, *overrides: str) -> str:
    """Return the error of a run; check that it published no mixture and nothing after it."""
    before = artifacts(run.store)
    with pytest.raises((TaskError, ProfileError)) as raised:
        run.run(project / "tiny.toml", *overrides)
    assert artifacts(run.store) == before
    assert not list((run.store.root / ".tmp").glob("*"))
    return str(raised.value)


def test_a_failed_gate_stops_the_run_and_its_audit_can_be_read(run: InProcess, project: Path) -> None:
    said = refusal(run, project, "audit.min_bytes_per_token=99", "audit.on_failure='fail'")
    assert re.search("`tokmill show [0-9a-f]{12} --read` shows why", said)
    record = run.store.newest("audit", "tiny")
    assert record is not None
    assert str(record.metrics["gate"]).startswith("failed: ")
    assert record.label == "v2"
    assert record.metrics["gate"] in (run.store.path(record.ref) / "summary.md").read_text("utf-8")
    assert refusal(run, project, "audit.min_bytes_per_token=99", "audit.on_failure='fail'") == said


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["mix.total_tokens=1000000"],
            ("mix: total_tokens=1000000 needs", "may be drawn 1 times. Feasible: total_tokens=", "at least"),
        ),
        (
            ["mix.min_epochs.few=1", "mix.total_tokens=500"],
            ("mix: min_epochs=1 of 'few' requires", "Feasible: ", "at the nearest weights {"),
        ),
        (
            ["mix.schedule_unit=tokens", "mix.schedule=[[0,{many=1,few=1}],[9000000,{many=1,few=0}]]"],
            (
                "that max_repetition allows end before the schedule's last change, at token 9000000",
                "Feasible",
            ),
        ),
        (
            ['mix.curriculum={difficulty="length",competence="step",start=0,stairs=2}'],
            ("'few'", "none of it is eligible where", "Feasible: curriculum.start of at least 0.5"),
        ),
        (
            ['mix.curriculum={difficulty="column:grade",sources=["many"]}'],
            ("mix.curriculum: source 'many': no document has a value in column 'grade'", "; name another"),
        ),
    ],
)
def test_a_mixture_that_cannot_be_had(run, project, overrides, says):
    message = refusal(run, project, *overrides)
    places = [message.find(part) for part in says]
    assert min(places) >= 0, message
    assert places == sorted(places), message


def test_an_encoded_shard_whose_checksum_is_wrong(run, project):
    encoded = run.store.resolve("encoded_shard/tiny.many/0")
    tokens = run.store.path(encoded) / "tokens.npy"
    data = bytearray(tokens.read_bytes())
    data[-2] ^= 1
    tokens.chmod(0o644)
    tokens.write_bytes(data)
    message = refusal(run, project, "pack.sequence_length=64")
    assert "pack: shard 0 of source 'many'" in message
    assert "tokens.npy: the file has digest" in message
    assert "changed or damaged" in message
    assert [
        problem for problem in Store.open(run.store.root).verify() if "tiny.many" not in str(problem)
    ] == []


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["pack.pad_id=280"], "pad_id=280 must be below vocab_size=280; use a token of the vocabulary"),
        (
            ["pack.strategy=best_fit", "pack.fim_rate=0.5", "pack.fim_token_ids=[1,2,280]"],
            "fim_token_ids has 280, which must be below vocab_size=280; use tokens of the vocabulary",
        ),
    ],
)
def test_an_id_beyond_the_vocabulary(run, project, overrides, says):
    before = {kind: len(list((run.store.root / kind).glob("*"))) for kind in ("packed", "packed_shard")}
    with pytest.raises(TaskError, match=says):
        run.run(project / "tiny.toml", *overrides)
    assert {kind: len(list((run.store.root / kind).glob("*"))) for kind in before} == before
    assert not list((run.store.root / ".tmp").glob("*"))
    assert run.store.verify() == []
