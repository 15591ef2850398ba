"""Fill a store with many artifacts: real records, labels, runs and corpora, and one small file for the rest.

    a corpus (four files in ten shards each) ─ counts of its shards ─ their sum        once for ten runs
    balance ─ tokenizer ─ 40 encoded shards ─ encoded ─ mixture ─ plan ─ 10 shards ─ packed ─ card    a run

A run has 56 artifacts and some 650 inputs, a corpus 42 of each. Everything is as the store itself would have
written it (fingerprints, digests, sealed records, labels), so that `tokmill verify` finds no problem; only
the time between publications, the flushes and the stages' work are left out. The content of a corpus is cut
short, so commands that read one (`impact`) refuse it. Equal arguments give equal stores, times of files
aside.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.core.stage import ArtifactRef, External, How, Input, Inputs
from tokmill.tasks.formats.corpus import MANIFEST_FILE
from tokmill.tasks.formats.text.resolving import origin_digest
from tokmill.tasks.store import FileEntry, Provenance, Record, Run, RunArtifact, Store, Timings
from tokmill.tasks.store.digest import content_digest, digest_bytes
from tokmill.tasks.store.fingerprints import fingerprint
from tokmill.tasks.store.record import encode_record, input_entries

SHARDS, PACKED_SHARDS, RUNS_PER_CORPUS, FILES_PER_CORPUS = 40, 10, 10, 4
ARTIFACTS_PER_CORPUS, ARTIFACTS_PER_RUN = SHARDS + 2, SHARDS + PACKED_SHARDS + 8
_MOMENT = "2026-11-{:02d}T{:02d}:{:02d}:{:02d}.000000Z"
_ROWS = 1000  # documents in a shard


@dataclass(frozen=True)
class _Corpus:
    ref: ArtifactRef
    shards: Sequence[External]
    counts: ArtifactRef
    made: Sequence[RunArtifact]


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
        files = [
            {"source": name, "name": f"part-{part}.jsonl", "digest": digest_bytes(f"{name}/{part}".encode())}
            for part in range(FILES_PER_CORPUS)
        ]
        inputs = [
            External(
                digest=origin_digest(file["source"], file["name"], file["digest"]),
                value={"path": str(self._text / name / file["name"])},
            )
            for file in files
        ]
        shards = [
            External(digest=digest_bytes(f"{name}#{index}".encode()), value=None) for index in range(SHARDS)
        ]
        tables = _corpus_tables(files, [shard.digest for shard in shards])
        self._run_id = None
        ref = self._add("corpus", name, "ingest", {"files": inputs}, extra=tables)
        parts = [
            self._add("count_shard", f"{name}.{name}/{index}", "count_shard", {"shard": shard})
            for index, shard in enumerate(shards)
        ]
        counts = self._add("counts", name, "count", {"corpus": ref, "shards": parts})
        made = [_made("ingest", ref), *(_made("count", part) for part in parts), _made("count", counts)]
        return _Corpus(ref, shards, counts, made)

    def _run(self, run_id: str, profile: str, corpus: _Corpus, number: int) -> None:
        self._run_id = run_id
        knob = {"temperature": number % RUNS_PER_CORPUS, "profile": profile}
        made = [RunArtifact(task=one.task, ref=one.ref, how="cached") for one in corpus.made]

        def add(kind: str, name: str, stage: str, inputs: Inputs) -> ArtifactRef:
            ref = self._add(kind, name, stage, inputs, knob | {"run": number})
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
        packed = add("packed", profile, "pack", {"plan": plan, "shards": parts})
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


def _corpus_tables(files: Sequence[Mapping[str, str]], shards: Sequence[str]) -> dict[str, bytes]:
    """The tables of a corpus, as far as anybody asks for them; each file is in ten shards, in order."""
    source, per_file = files[0]["source"], len(shards) // len(files)
    about = {"format": "jsonl", "num_rows": _ROWS, "first_ordinal": 0, "start": 0, "end": None}
    segments = [
        {
            **about,
            "source": source,
            "shard": index,
            "file": files[index // per_file]["name"],
            "first_row": index % per_file * _ROWS,
        }
        for index in range(len(shards))
    ]
    rows = {
        "files": [{**file, "size_bytes": 1, "format": "jsonl", "num_documents": 1} for file in files],
        "shards": [
            {"source": source, "shard": index, "digest": digest, "num_documents": _ROWS, "num_bytes": 1}
            for index, digest in enumerate(shards)
        ],
        "segments": segments,
    }
    tables = {f"{name}.parquet": _parquet(table) for name, table in rows.items()}
    return {**tables, MANIFEST_FILE: json.dumps({"format_version": 1}).encode()}


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)


def runs_of(num_artifacts: int) -> Iterator[str]:
    """Yield the ids of the runs that a store of this size has."""
    per_ten = ARTIFACTS_PER_CORPUS + RUNS_PER_CORPUS * ARTIFACTS_PER_RUN
    return (f"run-{number:05d}" for number in range(num_artifacts * RUNS_PER_CORPUS // per_ten))
