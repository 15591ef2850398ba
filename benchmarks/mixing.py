"""Mixing: plans of many documents in bounded memory, and what scoring them costs.

    python -m venv bench && bench/bin/pip install .
    bench/bin/python benchmarks/mixing.py                           # 50 million documents, all cases
    bench/bin/python benchmarks/mixing.py --documents 1e9 --case shuffled
    bench/bin/python benchmarks/mixing.py --only scores

`plans`: sources of made-up lengths (log-normal, 700 tokens on average) in shards of a million documents are
mixed into a plan on disk, each case in a process of its own: wall clock, CPU time and peak memory of that
process, from the lengths on disk to the plan on disk. Then, outside of the measurement, the plan is read
again and must hold every document of every source as often as it says, and the shares at every point.

`scores`: noise, and the fit and score of the trigram model, on the shared corpora encoded with cl100k.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard

from tokmill.tasks.encode.encoding import write_shard
from tokmill.tasks.formats.encoded import EncodedShard, EncodedStatistics
from tokmill.tasks.formats.mixture import Mixture, write_plan
from tokmill.tasks.mixing.lengths import ShardLengths, SourceLengths
from tokmill.tasks.mixing.sorting import scratch_below
from tokmill.tasks.mixing.stage import MixParams, Planning
from tokmill.tasks.score.measures import ModelManifest, TrigramModels

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SHARD = 1_000_000
SOURCES = {"web": 0.5, "code": 0.3, "books": 0.15, "papers": 0.05}
SCHEDULE = [
    (0, {"web": 7, "code": 2, "books": 1, "papers": 0}),
    (0.2, {"web": 5, "code": 3, "books": 1, "papers": 1}),
    (0.8, {"web": 2, "code": 3, "books": 2, "papers": 3}),
]
CASES = {
    "shuffled": {},
    "up to three epochs": {"temperature": 2.0, "max_repetition": 3.0},
    "schedule": {"schedule": SCHEDULE, "change": "cosine", "max_repetition": 8.0},
    "competence": {"curriculum": {"difficulty": "length", "competence": "sqrt", "start": 0.1}},
    "easy to hard": {"curriculum": {"difficulty": "length", "order": "easy_to_hard"}},
}


def made_up(folder: Path, documents: int) -> dict[str, SourceLengths]:
    """Write the offsets of made-up shards, and return what opens them."""
    sources = {}
    random = np.random.default_rng(0)
    for source, share in SOURCES.items():
        shards = []
        for index, first in enumerate(range(0, int(documents * share), SHARD)):
            size = min(SHARD, int(documents * share) - first)
            offsets = np.zeros(size + 1, dtype=np.int64)
            np.cumsum(
                np.clip(random.lognormal(6.1, 0.95, size), 1, 1 << 17).astype(np.int64), out=offsets[1:]
            )
            file = folder / f"{source}-{index}.npy"
            np.save(file, offsets)
            shards.append(ShardLengths(size, int(offsets[-1]), f"{index:064}", opener(file)))
        sources[source] = SourceLengths(shards)
    return sources


def opener(file: Path) -> Callable[[], np.ndarray]:
    return lambda: np.load(file, mmap_mode="r")


def one_case(case: str, documents: int, folder: Path) -> dict[str, float]:
    """Plan one case in this process; returns what it took."""
    sources = made_up(folder, documents)
    warm = {name: SourceLengths.of_arrays([np.arange(1, 50)]) for name in SOURCES}
    out = folder / "mixture"
    out.mkdir()
    plan(case, warm, folder / "warm")  # machine code is made before any time counts
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin, cpu = time.perf_counter(), time.process_time()
    planning = plan(case, sources, out)
    figures = {"wall": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
    figures["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures["before"] = before * 1024
    planning.weaver.shares().save(out)
    planning.manifest().save(out)
    figures["rows"] = planning.manifest().num_documents
    figures["tokens"] = planning.manifest().num_tokens
    figures["bytes"] = (out / "plan.parquet").stat().st_size
    check(out, sources)
    return figures


def plan(case: str, sources: dict[str, SourceLengths], out: Path) -> Planning:
    out.mkdir(exist_ok=True)
    with scratch_below(out, len(sources)) as scratch, write_plan(out) as append:
        planning = Planning.of(MixParams(**CASES[case]), sources, scratch)
        for block in planning.blocks():
            append(block)
    return planning


def check(path: Path, sources: dict[str, SourceLengths]) -> None:
    """Every document comes as often as any other of its source, within one; shares hold at every point."""
    mixture = Mixture.open(path)
    counts = [np.zeros(found.num_documents, dtype=np.uint16) for found in sources.values()]
    for block in mixture.batches():
        for index, count in enumerate(counts):
            mine = block.source == index
            places = block.shard[mine].astype(np.int64) * SHARD + block.document[mine]
            if not (count[places] <= block.epoch[mine]).all():
                raise SystemExit("a document comes before its turn")
            np.add.at(count, places, 1)
    for entry, count in zip(mixture.manifest.sources, counts, strict=True):
        if count.sum() != entry.drawn_documents or int(count.max()) > np.ceil(entry.max_repetition):
            raise SystemExit(f"{entry.source}: a document comes too often")
        off = max(entry.most_ahead_tokens, entry.most_behind_tokens)
        left = sum(other.short_tokens for other in mixture.manifest.sources)
        if off > mixture.manifest.longest_document_tokens + left:
            raise SystemExit(f"{entry.source}: {off} tokens from its share")


def plans(documents: int, cases: list[str]) -> None:
    print(f"\n{documents:,} documents in {len(SOURCES)} sources\n")
    print("| case | rows of the plan | tokens | seconds | CPU | rows a second | plan | peak memory |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="tokmill-mixing-") as folder:
            command = [
                sys.executable,
                __file__,
                "--child",
                folder,
                "--case",
                case,
                "--documents",
                str(documents),
            ]
            found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        print(
            f"| {case} | {found['rows']:,} | {found['tokens']:,} | {found['wall']:.0f} | {found['cpu']:.0f} "
            f"| {found['rows'] / found['wall']:,.0f} | {found['bytes'] / 1e6:,.0f} MB | "
            f"{found['peak'] / 1e6:,.0f} MB (imports {found['before'] / 1e6:,.0f}) |",
            flush=True,
        )


def scores() -> None:
    from tokmill import tokenizer
    from tokmill.tasks.score.kneser_ney import train
    from tokmill.tasks.score.measures import noise_of, perplexity_of, sample_of

    tok = tokenizer.load(SHARED / "vocabs" / "cl100k_base.tiktoken", split_pattern="cl100k")
    with tempfile.TemporaryDirectory(prefix="tokmill-mixing-") as name:
        shard, num_bytes = encoded(tok, Path(name))
        known = ModelManifest(
            vocab_size=tok.vocab_size,
            seed=0,
            end_of_document_id=None,
            num_tokens=(0, 0),
            num_documents=(0, 0),
        )
        print("\n| work | tokens | seconds, CPU | tokens a second | MB of text a second |")
        print("| --- | --- | --- | --- | --- |")
        noise_of(tok, shard, None)
        row("noise", shard, num_bytes, timed(lambda: noise_of(tok, shard, None))[1])
        models, seconds = timed(
            lambda: [train(list(sample_of(shard, "0", known, fold, 1.0)), tok.vocab_size) for fold in (0, 1)]
        )
        row("fit_trigrams", shard, num_bytes, seconds)
        both = TrigramModels(known, (models[0], models[1]))
        perplexity_of(shard, "0", both)
        row("perplexity", shard, num_bytes, timed(lambda: perplexity_of(shard, "0", both))[1])


def timed(work):
    begin = time.process_time()
    return work(), time.process_time() - begin


def row(work: str, shard: EncodedShard, num_bytes: int, seconds: float) -> None:
    print(
        f"| {work} | {shard.num_tokens:,} | {seconds:.1f} | {shard.num_tokens / seconds:,.0f} | "
        f"{num_bytes / seconds / 1e6:,.1f} |"
    )


def encoded(tok, folder: Path) -> tuple[EncodedShard, int]:
    """The shared corpora as one encoded shard, and their bytes."""
    texts = []
    for file in sorted((SHARED / "corpora").glob("*.jsonl.zst")):
        with file.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            texts += [json.loads(line)["text"] for line in stream.read().splitlines()]
    batch = tok.encode_batch(texts, as_text=True)
    offsets = np.asarray(batch.offsets, dtype=np.int64)
    statistics = EncodedStatistics(num_documents=len(texts), num_tokens=int(offsets[-1]))
    with write_shard(folder, tok.vocab_size) as writer:
        writer.append(batch.ids.astype(np.uint32), offsets, np.arange(len(texts)), statistics)
    return EncodedShard.open(folder), sum(len(text.encode()) for text in texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--documents", type=float, default=5e7, help="made-up documents (default: 50 million)"
    )
    parser.add_argument(
        "--case", choices=list(CASES), action="append", help="one of the cases; all by default"
    )
    parser.add_argument("--only", choices=["plans", "scores"])
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(one_case(asked.case[0], int(asked.documents), asked.child)))
        shutil.rmtree(asked.child, ignore_errors=True)
        return
    if asked.only != "scores":
        plans(int(asked.documents), asked.case or list(CASES))
    if asked.only != "plans":
        scores()


if __name__ == "__main__":
    main()
