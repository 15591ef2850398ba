"""Small stages and jobs, and what runs one of them without Prefect."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.test_flows.corpora import Noting
from tokmill.flows.profile import load_profile
from tokmill.flows.run.dag import Dag, Done, Job, MappedJob, Part
from tokmill.flows.run.direct import run_directly
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.target import Target
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params, Stage


class Nothing(Params):
    """No parameters."""


class Number(Params):
    """One."""

    number: int


def stage(verb: str, run: Any, params: type[Params] = Nothing) -> Stage[Any]:
    """A stage of its own kind."""
    return Stage(verb=verb, task=verb, kind=verb, version=1, params=params, run=run)


def write(params: Params, *, out: Path, **inputs: Any) -> Outcome:
    """Publish an artifact without files of interest."""
    (out / "made").write_text(params.model_dump_json())
    return Outcome(metrics={})


def fail(params: Params, *, out: Path, **inputs: Any) -> Outcome:
    """Fail always."""
    raise ValueError("this stage always fails")


def interrupt(params: Params, *, out: Path) -> Outcome:
    """Do as Ctrl-C does."""
    raise KeyboardInterrupt


def job(verb: str, run: Any = write, **inputs: Job) -> Job:
    """A job whose inputs are other jobs."""
    return Job(stage(verb, run), verb, "test", Nothing(), inputs)


def mapped(run: Any, num_parts: int, root: Job, sizes: Sequence[int] = ()) -> MappedJob:
    """A job with a task for each number, perhaps of text of these sizes."""

    def parts(ref: ArtifactRef, done: Done) -> list[Part]:
        numbers = zip(range(num_parts), sizes or [0] * num_parts, strict=True)
        return [Part(f"all/{number}", Number(number=number), {}, size) for number, size in numbers]

    return MappedJob(stage("each", run, Number), "each", "test", Params(), {}, of=root, parts=parts)


def run_one(run: Any, store: Path, *overrides: str, workers: int = 1) -> Noting:
    """Run one task without Prefect; returns what was told of it."""
    profile, told = load_profile("smoke", ["execution.retry_pause=0.01", *overrides]), Noting()
    machine, one = Machine.of(profile.execution, store=str(store), workers=workers), job("one", run)

    class One(Target):
        def compose(self, profile: Any, store: Any, sources: Any) -> Dag:
            return Dag([one], {"one": one})

    run_directly(profile, One(), machine, RunState(told))
    return told


def run_states(store: Path) -> list[tuple[str, str]]:
    """State and message of every run in the store."""
    runs = [json.loads(path.read_bytes()) for path in (store / "runs").glob("*.json")]
    return [(run["state"], run["message"]) for run in runs]


def digests(store: Path) -> dict[str, str]:
    """The content digest of every artifact, by fingerprint."""
    records = [json.loads(path.read_bytes()) for path in store.glob("*/*/record.json")]
    return {record["fingerprint"]: record["content_digest"] for record in records}
