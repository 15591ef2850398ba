"""Makes small corpora, similar to real ones, from a seed."""

import json
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokmill.flows.profile import load_profile
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Dag, Node, walk
from tokmill.flows.run.events import Event, RunState
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.sweeping import Grid, compose_sweep
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.recommendation import SweepParams

SYLLABLES = (
    "ba",
    "ko",
    "mi",
    "tru",
    "len",
    "sa",
    "vor",
    "qui",
    "ne",
    "sto",
    "пе",
    "ло",
    "и",
    "日",
    "本",
    "ß",
    "é",
)


def words(generator: random.Random, number: int) -> str:
    """Text of made-up words, some of them frequent."""
    lexicon = ["".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) for _ in range(400)]
    weights = [1 / rank for rank in range(1, len(lexicon) + 1)]
    return " ".join(generator.choices(lexicon, weights, k=number))


@cache  # many tests write the same texts, and each text is a millisecond of work
def texts(number: int, seed: int, num_words: int) -> tuple[str, ...]:
    """Texts of `num_words` words each."""
    generator = random.Random(seed)
    return tuple(words(generator, num_words) for _ in range(number))


def write_jsonl(path: Path, num_documents: int, *, seed: int, num_words: int = 120) -> None:
    """Write documents of about `7 * num_words` bytes."""
    lines = (
        json.dumps({"id": f"{seed}-{index}", "text": text}, ensure_ascii=False)
        for index, text in enumerate(texts(num_documents, seed, num_words))
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


PROFILE = """
name = "tiny"

[sources.many]
files = ["many/*.jsonl"]

[sources.few]
files = ["few/*.txt"]
format = "delimited"
delimiter = "\\n\\n"

[ingest]
shard_bytes = 65536

[balance]
method = "temperature"
temperature = 2.0

[train]
vocab_size = 600
special_tokens = ["<|endoftext|>"]

[encode]
end_of_document = "<|endoftext|>"

[mix]
max_repetition = 3.0

[mix.weights]
many = 4.0
few = 1.0

[pack]
sequence_length = 128
sequences_per_shard = 512
formats = ["memmap", "parquet"]
"""


def write_project(folder: Path, *, num_documents: int = 480) -> str:
    """Write two sources and a profile over them; return the profile's file name.

    `many` is JSON lines of about a kilobyte in three files, `few` two text files of paragraphs.
    """
    (folder / "many").mkdir(parents=True)
    (folder / "few").mkdir()
    for part in range(3):
        write_jsonl(folder / "many" / f"part-{part}.jsonl", num_documents // 3, seed=part)
    for part in range(2):
        (folder / "few" / f"{part}.txt").write_text(
            "\n\n".join(texts(60, 100 + part, 60)) + "\n", encoding="utf-8"
        )
    (folder / "tiny.toml").write_text(PROFILE, encoding="utf-8")
    return "tiny.toml"


class Noting:
    """Keeps the notes of a run."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def __call__(self, event: Event, state: RunState) -> None:
        """Keep one."""
        if event.what == "noted":
            self.notes.append(event.text)


@dataclass(frozen=True)
class InProcess:
    """A store, and runs on it."""

    store: Store

    @classmethod
    def at(cls, folder: Path) -> "InProcess":
        """Return runs on a store in a folder."""
        return cls(Store.open(folder))

    def run(self, profile: str | Path, *overrides: str, until: Collection[str] = ()) -> Mapping[str, Node]:
        """Make all artifacts of a profile, or those of some kinds and what they need; return them by kind."""
        loaded = load_profile(profile, overrides)
        return self._made(compose(loaded, resolve_sources(loaded, self.store), self.store.path, until))

    def sweep(
        self, profile: str | Path, grid: Grid, *overrides: str, model: SweepParams | None = None
    ) -> Mapping[str, Node]:
        """Make all artifacts of a sweep."""
        loaded = load_profile(profile, overrides)
        sources = resolve_sources(loaded, self.store)
        return self._made(compose_sweep(loaded, grid, model or SweepParams(), sources, self.store.path))

    def _made(self, dag: Dag) -> Mapping[str, Node]:
        return dag.artifacts(walk(dag.jobs, lambda step: self.store.realize(step.request()).ref))
