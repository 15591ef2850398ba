"""Fill a store with many artifacts: real records, labels, runs and corpora, and one small file for the rest.

    a corpus (four files in ten shards each) ─ counts of its shards ─ their sum        once for ten runs
    balance ─ tokenizer ─ 40 encoded shards ─ encoded ─ mixture ─ plan ─ 10 shards ─ packed ─ card    a run

A run has 57 artifacts and some 650 inputs, a corpus 42 of each. Everything is as the store itself would have
written it (fingerprints, digests, sealed records, labels), so that `tokmill store verify` finds no problem;
only the time between publications, the flushes and the stages' work are left out. Corpora and the pieces of
packings can be read, so that `tokmill data impact` answers (`large_store_files.py`); the others have one
small file. Equal arguments give equal stores, times of files and the place of the text aside.

    python benchmarks/large_store.py FOLDER                        make one of 100,000 artifacts
    python benchmarks/large_store.py FOLDER --measure              time commands on it, which has a catalog
    python benchmarks/large_store.py FOLDER --measure --rebuild    make the catalog first, and time that, too
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from large_store_files import PACKED_SHARDS, SHARDS, corpus_files, packed_files, text_files

from tokmill.tasks.core.stage import ArtifactRef, External, How, Input, Inputs
from tokmill.tasks.formats.text.source_files import origin_digest
from tokmill.tasks.store import FileEntry, Provenance, Record, Run, RunArtifact, Store, Timings
from tokmill.tasks.store.digest import content_digest
from tokmill.tasks.store.fingerprint import digest_bytes, fingerprint
from tokmill.tasks.store.record import encode_record, input_entries

RUNS_PER_CORPUS = 10
_MOMENT = "2026-11-{:02d}T{:02d}:{:02d}:{:02d}.000000Z"


@dataclass(frozen=True)
class _Corpus:
    ref: ArtifactRef
    shards: Sequence[External]
    counts: ArtifactRef
    made: Sequence[RunArtifact]
    packed: Mapping[str, bytes]


class LargeStore:
    """Writes the artifacts of many runs into a store.

    Args:
        store: the store.
        text: the folder where the corpora's files would be; they are not written.
    """

    def __init__(self, store: Store, text: Path) -> None:
        self._layout = store.layout
        self._text = text
        self._number = 0
        self._run_id: str | None = None
        self._folders: set[str] = set()
        self.num_artifacts = 0
        self.num_inputs = 0

    def fill(self, num_artifacts: int) -> None:
        """Add whole runs until there are at least this many artifacts, with their records of runs."""
        number = 0
        while self.num_artifacts < num_artifacts:
            if number % RUNS_PER_CORPUS == 0:
                corpus = self._corpus(f"corpus-{number // RUNS_PER_CORPUS:04d}")
            self._run(f"run-{number:05d}", f"profile-{number % 97:02d}", corpus, number)
            number += 1

    def _corpus(self, name: str) -> _Corpus:
        inputs = [
            External(
                digest=origin_digest(name, file.name, file.digest),
                value={"path": str(self._text / name / file.name)},
                about={"source": name, "name": file.name, "digest": file.digest, "size": 1},
            )
            for file in text_files(name)
        ]
        shards = [
            External(digest=digest_bytes(f"{name}#{index}".encode()), value=None) for index in range(SHARDS)
        ]
        self._run_id = None
        extra = corpus_files(name, [shard.digest for shard in shards])
        ref = self._add("corpus", name, "ingest", {"files": inputs}, extra=extra)
        parts = [
            self._add("count_shard", f"{name}.{name}/{index}", "count_shard", {"shard": shard})
            for index, shard in enumerate(shards)
        ]
        counts = self._add("counts", name, "count", {"corpus": ref, "shards": parts})
        made = [_made("ingest", ref), *(_made("count", part) for part in parts), _made("count", counts)]
        return _Corpus(ref, shards, counts, made, packed_files(name))

    def _run(self, run_id: str, profile: str, corpus: _Corpus, number: int) -> None:
        self._run_id = run_id
        knob = {"temperature": number % RUNS_PER_CORPUS, "profile": profile}
        made = [RunArtifact(task=one.task, ref=one.ref, how="cached") for one in corpus.made]

        def add(
            kind: str, name: str, stage: str, inputs: Inputs, extra: Mapping[str, bytes] | None = None
        ) -> ArtifactRef:
            ref = self._add(kind, name, stage, inputs, knob | {"run": number}, extra)
            made.append(_made(stage, ref))
            return ref

        balance = add("balance", profile, "balance", {"corpus": corpus.ref})
        tokenizer = add("tokenizer", profile, "train", {"counts": corpus.counts, "balance": balance})
        shards = [
            add(
                "encoded_shard",
                f"{profile}.{corpus.ref.name}/{index}",
                "encode_shard",
                {"shard": shard, "tokenizer": tokenizer},
            )
            for index, shard in enumerate(corpus.shards)
        ]
        both = {"corpus": corpus.ref, "tokenizer": tokenizer}
        encoded = add("encoded", profile, "encode", {**both, "shards": shards})
        tokens: dict[str, Input | Sequence[Input]] = {"encoded": encoded, "shards": shards}
        mixture = add("mixture", profile, "mix", tokens)
        plan = add("pack_plan", profile, "pack_plan", {**tokens, "mixture": mixture})
        parts = [
            add("packed_shard", f"{profile}.shard/{index}", "pack_shard", {**tokens, "plan": plan})
            for index in range(PACKED_SHARDS)
        ]
        packed = add("packed", profile, "pack", {"plan": plan, "shards": parts}, corpus.packed)
        add("card", profile, "card", {**both, "mixture": mixture, "packed": packed})
        self._write_run(run_id, profile, made, knob)

    def _add(
        self,
        kind: str,
        name: str,
        stage: str,
        inputs: Inputs,
        params: Mapping[str, Any] | None = None,
        extra: Mapping[str, bytes] | None = None,
    ) -> ArtifactRef:
        self._number += 1
        given = {**(params or {}), "number": self._number}
        payload = {"stage": stage, "version": 1, "params": given, "inputs": _digests(inputs)}
        owner = fingerprint(payload)
        data = {"text.txt": owner.encode(), **(extra or {})}
        entries = [
            FileEntry(path=path, size_bytes=len(content), digest=digest_bytes(content))
            for path, content in sorted(data.items())
        ]
        moment = _MOMENT.format(1 + self._number // 86400 % 28, *_clock(self._number))
        record = Record(
            kind=kind,
            name=name,
            label=self._label(kind, name, owner),
            fingerprint=owner,
            payload=payload,
            content_digest=content_digest(entries),
            files=entries,
            inputs=input_entries(inputs),
            params=given,
            metrics={"num_tokens": self._number, "bytes_per_token": 4 + self._number % 97 / 100},
            accounts=[],
            timings=Timings(started=moment, ended=moment, seconds=1.0),
            provenance=Provenance(user="someone", flow_run_id=self._run_id),
        )
        place = self._folder(self._layout.artifact(kind, owner))
        for path, content in data.items():
            self._folder((place / path).parent)
            _write(place / path, content)
        _write(place / "record.json", encode_record(record))
        self.num_artifacts += 1
        self.num_inputs += len(record.inputs)
        return record.ref

    def _label(self, kind: str, name: str, owner: str) -> str:
        folder = self._folder(self._layout.names("labels", kind, name))
        label = f"v{1 + len(list(folder.iterdir()))}"
        _write(folder / f"@{label}", b'{"fingerprint": "%s"}\n' % owner.encode())
        return label

    def _write_run(
        self, run_id: str, profile: str, made: Sequence[RunArtifact], knob: Mapping[str, Any]
    ) -> None:
        moment = _MOMENT.format(1 + self._number // 86400 % 28, *_clock(self._number))
        run = Run(
            run_id=run_id,
            profile=profile,
            parameters={"mix": knob},
            state="completed",
            started=moment,
            ended=moment,
            artifacts=list(made),
            provenance=Provenance(user="someone"),
        )
        folder = self._folder(self._layout.runs)
        _write(folder / f"{run_id}.json", run.model_dump_json(indent=1).encode() + b"\n")

    def _folder(self, path: Path) -> Path:
        if str(path) not in self._folders:
            path.mkdir(parents=True, exist_ok=True)
            self._folders.add(str(path))
        return path


def _digests(inputs: Inputs) -> dict[str, Any]:
    def digest(given: Input) -> str:
        return given.content_digest if isinstance(given, ArtifactRef) else given.digest

    return {
        role: digest(given) if isinstance(given, ArtifactRef | External) else [digest(item) for item in given]
        for role, given in inputs.items()
    }


def _made(stage: str, ref: ArtifactRef, how: How = "made") -> RunArtifact:
    return RunArtifact(task=stage, ref=ref, how=how)


def _clock(number: int) -> tuple[int, int, int]:
    return number // 3600 % 24, number // 60 % 60, number % 60


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)


COMMANDS = (
    "--version",
    "runs",
    "ls",
    "ls --limit 200",
    "ls card",
    "ls --json",
    "ls --all --json",
    "show card/profile-50",
    "runs show run-00500",
    "compare --artifacts card/profile-50@v1 card/profile-50@v2",
    "lineage card/profile-50",
    "lineage corpus/corpus-0003 --down",
    "data impact {text}/corpus-0003/part-1.jsonl",
    "data impact {text}/corpus-0003/part-1.jsonl:117",
    "data impact {digest}",
    "sql 'SELECT count(*) FROM inputs'",
)


def measure(store: Path, text: Path, repeats: int) -> None:
    """Print the median times of whole commands, each run several times; an error ends it."""
    digest = text_files("corpus-0003")[1].digest
    print(f"{'command':60} {'wall s':>8} {'CPU s':>8} {'load':>6} {'lines':>9}")
    for command in COMMANDS:
        words = [word.strip("'") for word in command.format(text=text, digest=digest).split(" ", 1)]
        rest = [words[1]] if words[0] == "sql" else words[1:] and words[1].split()
        timed = [_timed([words[0], *rest], store) for _ in range(repeats)]
        wall, cpu = (statistics.median(each[place] for each in timed) for place in (0, 1))
        print(f"{command:60} {wall:8.2f} {cpu:8.2f} {os.getloadavg()[0]:6.1f} {timed[0][2]:9,}", flush=True)


def _timed(words: Sequence[str], store: Path) -> tuple[float, float, int]:
    """Run a command; return its wall and CPU seconds, and the lines of its output."""
    environment = {**os.environ, "TOKMILL_STORE": str(store)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", *words], env=environment, check=True, stdout=subprocess.PIPE
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout.count(b"\n")


def main() -> None:
    """Make a store, or measure commands on it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where it is, or is made")
    parser.add_argument("--artifacts", type=int, default=100_000)
    parser.add_argument("--measure", action="store_true", help="time commands on the store that is there")
    parser.add_argument("--rebuild", action="store_true", help="also time `catalog rebuild`")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    store, text = given.folder.absolute(), given.folder.absolute().with_name("text")
    if not given.measure:
        shutil.rmtree(store, ignore_errors=True)
        large = LargeStore(Store(store), text)
        large.fill(given.artifacts)
        print(f"{large.num_artifacts:,} artifacts with {large.num_inputs:,} inputs")
        return
    if given.rebuild:
        wall, cpu, _ = _timed(["store", "rebuild"], store)
        print(f"{'catalog rebuild':60} {wall:8.2f} {cpu:8.2f} {os.getloadavg()[0]:6.1f}")
    measure(store, text, given.repeats)


if __name__ == "__main__":
    main()
