"""The DAG as values: jobs with dependencies, and the steps of each job.

A fingerprint covers the content digests of its inputs, so a `Job` names the jobs that make its inputs; once
they are done, `Job.steps` returns its steps: one, or one per part if the job is mapped over shards. What a
plan finds missing is `Pending`, and so is every artifact that depends on it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tokmill.flows.errors import RunError
from tokmill.tasks.core.stage import ArtifactRef, External, Input, Params, Request, Stage


@dataclass(frozen=True)
class Pending:
    """An artifact that does not exist yet; `task` is the title of the step that would make it."""

    task: str


Node: TypeAlias = ArtifactRef | Pending
StepInput: TypeAlias = Node | External | Sequence[Node | External]
JobInput: TypeAlias = "Job | Input | Sequence[Input] | Sequence[Job]"
Done: TypeAlias = Mapping["Job", Sequence[Node]]
"""The results of finished jobs: one artifact per step, in the order of the steps."""


@dataclass(frozen=True)
class Step:
    """One task of the DAG: a stage applied to inputs, some of which may be pending."""

    stage: Stage[Any]  # the stage to run
    title: str  # the name that people see, e.g. `encode[english/3]`
    name: str  # the artifact's name, e.g. `quickstart.english/3`
    params: Params  # the stage's parameters
    inputs: Mapping[str, StepInput]  # the stage's inputs, by role
    # artifacts that list the step's inputs. They do not change the fingerprint, but the Prefect UI draws
    # edges from them
    after: Sequence[Node] = ()
    num_bytes: int = 0  # see `Part`

    def request(self) -> Request:
        """Return the request for the step's artifact; only for a step without pending inputs."""
        inputs = {role: _published(given) for role, given in self.inputs.items()}
        return Request(self.stage, self.name, self.params, inputs)


@dataclass(frozen=True, eq=False)
class Job:
    """A stage whose inputs may not exist yet."""

    stage: Stage[Any]
    title: str
    name: str
    params: Params
    # the stage's inputs, by role; a job stands for its result, several jobs for theirs in order
    inputs: Mapping[str, JobInput]
    needs: Sequence["Job"] = ()  # jobs that must be done first although their artifacts are not inputs
    # raises an error if the run must not continue from the published artifact, as a gate does
    check: Callable[[ArtifactRef], None] | None = None

    @property
    def dependencies(self) -> Sequence["Job"]:
        """The jobs that must be done before this one."""
        several = [given if isinstance(given, Sequence) else [given] for given in self.inputs.values()]
        return [job for given in several for job in given if isinstance(job, Job)] + [*self.needs]

    def steps(self, done: Done) -> list[Step]:
        """Return the job's steps, from the results of its dependencies."""
        return [Step(self.stage, self.title, self.name, self.params, self._inputs(done))]

    def given(self, done: Done) -> StepInput:
        """Return the input of a stage that takes this job: its artifact."""
        (node,) = done[self]
        return node

    def accept(self, nodes: Sequence[Node]) -> None:
        """Check the published artifacts of this job."""
        for node in nodes:
            if self.check is not None and isinstance(node, ArtifactRef):
                self.check(node)

    def _inputs(self, done: Done) -> dict[str, StepInput]:
        return {role: _given(given, done) for role, given in self.inputs.items()}


def _given(given: JobInput, done: Done) -> StepInput:
    """Return what a stage gets for an input, once the jobs that it stands for are done."""
    if isinstance(given, Sequence):
        return [done[one][0] if isinstance(one, Job) else one for one in given]
    return given.given(done) if isinstance(given, Job) else given


@dataclass(frozen=True)
class Part:
    """One task of a mapped job: its label (`english/3`), its own parameters and its own inputs."""

    label: str
    params: Params
    inputs: Mapping[str, StepInput]
    num_bytes: int = 0  # of its text; the largest parts begin first, so that none is alone at the end


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedJob(Job):
    """A job with one step per part; the parts are known once the artifact that lists them is published."""

    of: Job  # the job whose artifact lists the parts
    # returns the parts; called only after that artifact is published
    parts: Callable[[ArtifactRef, Done], Sequence[Part]]

    @property
    def dependencies(self) -> Sequence[Job]:
        """The jobs that must be done before this one."""
        return [self.of, *super().dependencies]

    def steps(self, done: Done) -> list[Step]:
        """Return one step per part; a single one while the parts are unknown."""
        (whole,) = done[self.of]
        inputs = self._inputs(done)
        if isinstance(whole, Pending):
            return [Step(self.stage, f"{self.title}[…]", self.name, Params(), {"of": whole, **inputs})]
        return [
            Step(
                self.stage,
                f"{self.title}[{part.label}]",
                f"{self.name}.{part.label}",
                part.params,
                {**inputs, **part.inputs},
                after=[whole],
                num_bytes=part.num_bytes,
            )
            for part in self.parts(whole, done)
        ]

    def given(self, done: Done) -> StepInput:
        """Return the input of a stage that takes this job: all its artifacts."""
        return done[self]


@dataclass(frozen=True)
class Dag:
    """The jobs of one profile, each after its dependencies, and the job or artifact of each kind."""

    jobs: Sequence[Job]
    kinds: Mapping[str, Job | ArtifactRef]

    def until(self, kinds: Collection[str]) -> "Dag":
        """Return the part of the DAG that makes artifacts of these kinds; the whole for no kinds."""
        if not kinds:
            return self
        for kind in kinds:
            if kind not in self.kinds:
                known = ", ".join(self.kinds)
                raise RunError(f"until={kind!r}: the run makes no such artifact; it makes {known}")
        waiting = [job for kind in kinds if isinstance(job := self.kinds[kind], Job)]
        needed: set[Job] = set()
        while waiting:
            job = waiting.pop()
            if job not in needed:
                needed.add(job)
                waiting += job.dependencies
        left = {
            kind: found
            for kind, found in self.kinds.items()
            if isinstance(found, ArtifactRef) or found in needed
        }
        return Dag([job for job in self.jobs if job in needed], left)

    def artifacts(self, done: Done) -> dict[str, ArtifactRef]:
        """Return kind → artifact, from the results of all jobs."""
        found = {kind: done[made][0] if isinstance(made, Job) else made for kind, made in self.kinds.items()}
        return {kind: node for kind, node in found.items() if isinstance(node, ArtifactRef)}


def walk(jobs: Sequence[Job], make: Callable[[Step], Node]) -> Done:
    """Run the steps of all jobs one after the other, in the order of the DAG."""
    done: dict[Job, list[Node]] = {}
    for job in jobs:
        done[job] = [make(step) for step in job.steps(done)]
        job.accept(done[job])
    return done


def references(step: Step) -> list[ArtifactRef]:
    """Return the published artifacts that a step depends on, each once."""
    return list(dict.fromkeys(node for node in _nodes(step) if isinstance(node, ArtifactRef)))


def pending(step: Step) -> list[Pending]:
    """Return the artifacts that a step waits for in a plan, each once."""
    return list(dict.fromkeys(node for node in _nodes(step) if isinstance(node, Pending)))


def _nodes(step: Step) -> Iterator[Node]:
    for given in (*step.inputs.values(), step.after):
        for node in given if isinstance(given, Sequence) else [given]:
            if not isinstance(node, External):
                yield node


def _published(given: StepInput) -> Input | list[Input]:
    if isinstance(given, Sequence):
        return [node for node in given if not isinstance(node, Pending)]
    if isinstance(given, Pending):
        raise TypeError(f"the artifact of {given.task!r} is not published yet")
    return given
