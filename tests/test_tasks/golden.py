"""What every stage gives for fixed texts, as digests under the stage's version: `tests/golden/digests.json`.

    python -m tests.test_tasks.golden      # writes the file again

Raise a stage's `version` first where it gives other bytes than before: artifacts that are already in
somebody's store are taken for what the stage gives. Never change the texts in `tests/golden/texts`.

A digest is over a file's bytes, with exceptions, so that none depends on another library's version. Of
Parquet files it is over schema, row groups and rows, of Arrow streams over rows, of compressed files over
what they hold. Other artifacts' digests read as their kind. The versions of Unicode tables, and what a parser
says of a broken line, are left out.
"""

import hashlib
import json
import pkgutil
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from tests.test_tasks.whole_line import Line, LineParams
from tokmill import tasks
from tokmill.tasks.audit.stage import AuditParams
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.card.stage import CardParams, TokenizerCardParams
from tokmill.tasks.core.stage import ArtifactRef, External, Stage
from tokmill.tasks.count.stage import MERGE_COUNTS, MergeParams
from tokmill.tasks.encode.stage import ENCODE_SHARD, EncodeParams
from tokmill.tasks.formats.packed.manifest import PackedFormat, PackedManifest
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.holdout.stage import HASH_DOCUMENTS, HOLDOUT, PARTS, HoldoutParams, NoParams
from tokmill.tasks.ingest.stage import IngestParams
from tokmill.tasks.mixing.consume import CONSUME, ConsumeParams
from tokmill.tasks.mixing.params import CurriculumParams
from tokmill.tasks.mixing.stage import MIX, MixParams
from tokmill.tasks.packing.export import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.packing.stage import PackParams
from tokmill.tasks.score.stage import SCORE_COLUMN, ColumnParams
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.cell import SWEEP_CELL, CellParams
from tokmill.tasks.sweep.stage import SWEEP, SweepStageParams
from tokmill.tasks.takedown.stage import EXCLUDE, TAKEDOWN, TakedownParams
from tokmill.tasks.train.adopt import ADOPT, AdoptParams
from tokmill.tasks.train.stage import TrainParams
from tokmill.tasks.vocabulary.stage import EXTEND, TRIM, ExtendParams, TrimParams

FOLDER = Path(__file__).resolve().parents[1] / "golden"
DIGESTS = FOLDER / "digests.json"
Digests = dict[str, dict[str, Any]]

SOURCES = {
    "code": SourceSpec(files=["code/*.py"], format="prose"),
    "cyrillic": SourceSpec(files=["cyrillic/*.jsonl"], id_column="id", on_error="quarantine"),
    "latin": SourceSpec(files=["latin/*.txt"], format="delimited", delimiter="\n\n"),
    "numbers": SourceSpec(files=["numbers/*.txt"], format="lines"),
}
PARAMS = LineParams(
    train=TrainParams(
        vocab_size=500, split_pattern="cl100k", special_tokens=["<|endoftext|>", "<|pad|>"], num_reserved=2
    ),
    balance=BalanceParams(temperature=2.0, max_repetition=4.0),
    encode=EncodeParams(min_tokens=2),
    audit=AuditParams(min_bytes_per_token={"latin": 1.0}, max_unused_share=0.0, sample_megabytes=0.05),
    mix=MixParams(
        weights={"code": 0.2, "cyrillic": 2, "latin": 1, "numbers": 3}, max_repetition={"cyrillic": 2}, seed=7
    ),
    pack=PackParams(
        sequence_length=64, strategy="greedy", sequences_per_shard=100, formats=["memmap", "parquet"]
    ),
    tokenizer_card=TokenizerCardParams(title="Golden", reasons={"split_pattern": "code"}),
    card=CardParams(title="Golden", license="CC0", source_notes={"code": "one file"}),
)
EXPORTED = sorted({*get_args(PackedFormat)} - {"memmap", "parquet"})
_DIGEST = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True)
class GoldenLine(Line):
    """Remembers what every stage made, in order."""

    made: list[tuple[Stage[Any], ArtifactRef]] = field(default_factory=list)

    def make(self, stage, params, **inputs) -> ArtifactRef:
        ref = super().make(stage, params, **inputs)
        self.made.append((stage, ref))
        return ref


def all_stages() -> dict[str, Stage[Any]]:
    """Every stage that a module of `tasks` defines, by its verb."""
    modules = pkgutil.walk_packages(tasks.__path__, "tokmill.tasks.")
    names = [module.name for module in modules if not module.name.endswith("torch_dataset")]
    found = [value for name in names for value in vars(import_module(name)).values()]
    return {stage.verb: stage for stage in found if isinstance(stage, Stage)}


def current_digests(folder: Path) -> Digests:
    """Run every stage in the empty `folder`; return verb → version and digests."""
    texts = folder / "texts"
    shutil.copytree(FOLDER / "texts", texts)
    (texts / "numbers").mkdir()
    lines = (f"{k} times {k % 97} is {k * (k % 97)}, and {'so ' * (k % 7)}on.\n" for k in range(6_000))
    (texts / "numbers" / "products.txt").write_text("".join(lines), encoding="utf-8")
    line = GoldenLine(Store.open(folder / "store"), texts, SOURCES, IngestParams(shard_bytes=64 << 10))
    made = line.run(PARAMS)
    exported = line.store.path(made["tokenizer"]) / "exports" / "tiktoken" / "tokenizer.tiktoken"
    line.make(ADOPT, AdoptParams(), file=External(digest="0" * 64, value=str(exported)))
    exported = [
        line.make(EXPORT_SHARD, ExportShardParams(index=index, formats=EXPORTED), packed=made["packed"])
        for index in range(len(PackedManifest.open(line.store.path(made["packed"])).shards))
    ]
    line.make(EXPORT, ExportParams(formats=EXPORTED), packed=made["packed"], shards=exported)
    taken = [
        {"name": "latin:de.txt:0", "source": "latin", "file": "de.txt", "row": 0, "shard": 0, "ordinal": 0}
    ]
    documents = External(digest="1" * 64, value=taken)
    line.make(TAKEDOWN, TakedownParams(), packed=made["packed"], documents=documents)
    encoded = [ref for stage, ref in line.made if stage.verb == "encode_shard"]
    tokens = {"encoded": made["encoded"], "shards": encoded}
    line.make(EXCLUDE, TakedownParams(), mixture=made["mixture"], documents=documents, **tokens)
    counted = [ref for stage, ref in line.made if stage.verb == "count_shard"]
    line.make(MERGE_COUNTS, MergeParams(), shards=counted)
    _curriculum(line, made["tokenizer"], tokens, folder)
    _holdout(line)
    _vocabularies(line, made["tokenizer"], texts)
    _sweep(line, made, folder)
    kinds = {ref.content_digest.encode(): ref.kind.encode() for _, ref in line.made}
    digests: Digests = {}
    for stage, ref in line.made:
        entry = digests.setdefault(stage.verb, {"version": stage.version, "artifacts": []})
        entry["artifacts"].append(_artifact_digests(line.store, ref, kinds))
    return digests


def _curriculum(line: GoldenLine, tokenizer: ArtifactRef, tokens: dict[str, Any], folder: Path) -> None:
    """Score what is encoded, mix it by a schedule and a curriculum, and read a column of another source."""
    rules = CurriculumParams(difficulty=["length", "noise", "perplexity"], competence="exp", start=0.2)
    schedule = [(0, dict.fromkeys(SOURCES, 1)), (0.5, {**dict.fromkeys(SOURCES, 1), "latin": 9})]
    mix = MixParams(schedule=schedule, change="cosine", curriculum=rules, max_repetition=3.0)
    scores = line.scores(replace(PARAMS, mix=mix), tokenizer, tokens)
    mixture = line.make(MIX, mix, **tokens, **scores)
    packed = line.packed(PARAMS.pack, mixture, tokens)
    consumed = ConsumeParams(consumed_tokens=1_999)
    ledger = line.make(CONSUME, consumed, mixture=mixture, packed=packed, **tokens)
    line.make(MIX, mix, **tokens, **scores, ledger=ledger)
    rows = ({"text": f"row {k} of a table", "grade": k * 37 % 101} for k in range(50))
    (folder / "graded" / "rows").mkdir(parents=True)
    (folder / "graded" / "rows" / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    graded = Line(line.store, folder / "graded", {"rows": SourceSpec(files=["rows/*.jsonl"])})
    _, (text,) = graded.corpus()
    encoded = graded.make(ENCODE_SHARD, PARAMS.encode, tokenizer=tokenizer, shard=text)
    line.make(SCORE_COLUMN, ColumnParams(column="grade"), text=text, shard=encoded)


def _holdout(line: GoldenLine) -> None:
    """Divide the corpus, by shares and by a number."""
    again = Line(line.store, line.texts, line.specs, line.ingest)
    corpus, texts = again.corpus()
    hashed = [line.make(HASH_DOCUMENTS, NoParams(), shard=text) for text in texts]
    held_out = HoldoutParams(share={"numbers": 0.1, "latin": 0.5}, num_documents={"cyrillic": 2}, seed=3)
    for part in PARTS:
        line.make(HOLDOUT, held_out.for_part(part), corpus=corpus, documents=hashed)


def _vocabularies(line: GoldenLine, tokenizer: ArtifactRef, texts: Path) -> None:
    """Add terms to the tokenizer, given and found ones, and take tokens away."""
    file = texts / "numbers" / "products.txt"
    text = External(digest="2" * 64, value={"path": str(file), "name": file.name})
    terms = ExtendParams(terms=("products", "two words"), num_mined=3)
    line.make(EXTEND, terms, tokenizer=tokenizer, texts=[text])
    line.make(TRIM, TrimParams(vocab_size=400), tokenizer=tokenizer, texts=[text], others=[text])


def _sweep(line: GoldenLine, made: Mapping[str, ArtifactRef], folder: Path) -> None:
    """Make the only cell of a sweep, measured on what it was trained on and on parallel text."""
    parallel = []
    for language, text in (("eng", "one line\nanother\n"), ("fin", "yksi rivi\ntoinen\n")):
        (folder / language).write_text(text, encoding="utf-8")
        value = {"language": language, "path": str(folder / language)}
        parallel.append(External(digest=language, value=value))
    inputs = {"counts": made["counts"], "balance": made["balance"], "text": made["counts"]}
    params = CellParams.model_validate(PARAMS.train.model_dump(exclude_unset=True))
    cell = line.make(SWEEP_CELL, params, **inputs, parallel=parallel)
    line.make(SWEEP, SweepStageParams(held_out=False), cells=[cell])


def _artifact_digests(store: Store, ref: ArtifactRef, kinds: Mapping[bytes, bytes]) -> dict[str, str]:
    """Digests of an artifact's files, and of what its record says of the work: metrics and accounts."""
    record, folder = store.record(ref), store.path(ref)
    files = {entry.path: _digest(_content(folder / entry.path, kinds)) for entry in record.files}
    metrics = {name: value for name, value in record.metrics.items() if name != "unicode_tables"}
    said = [metrics, [account.model_dump(mode="json") for account in record.accounts]]
    return files | {"(metrics and accounts)": _digest(json.dumps(said).encode())}


def _content(file: Path, kinds: Mapping[bytes, bytes]) -> bytes:
    """What a file holds, without what other libraries' versions decide."""
    if file.suffix == ".parquet":
        return "\n".join(_logical(file)).encode()
    if file.suffix == ".arrow":
        return "\n".join(
            repr(tuple(row.values())) for row in pa.ipc.open_stream(file).read_all().to_pylist()
        ).encode()
    if file.suffix == ".zst":
        return zstandard.ZstdDecompressor().stream_reader(file.read_bytes()).read()
    data = file.read_bytes()
    if file.suffix not in {".json", ".md"}:
        return data
    if file.name == "card.md":
        data = b"".join(line for line in data.splitlines(keepends=True) if not _DIGEST.search(line))
    if file.name in {"attestation.json", "card.json", "tokmill.json"} or file.name.endswith(".sidecar.json"):
        data = json.dumps(_without_versions(json.loads(data)), ensure_ascii=False).encode()
    return _DIGEST.sub(lambda digest: kinds.get(digest[0], digest[0]), data)


def _without_versions(content: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer's file without Unicode versions."""
    content.pop("unicode", None)
    return content


def _logical(file: Path) -> Iterator[str]:
    """A Parquet file's columns, its row groups' sizes, and its rows."""
    with pq.ParquetFile(file) as parquet:
        yield from (f"{column.name} {column.type} {column.nullable}" for column in parquet.schema_arrow)
        yield str([parquet.metadata.row_group(k).num_rows for k in range(parquet.num_row_groups)])
        yield from (repr(tuple(row.values())) for row in parquet.read().to_pylist())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def golden_digests() -> Digests:
    """The digests that are kept."""
    found: Digests = json.loads(DIGESTS.read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Write the digests of now."""
    with tempfile.TemporaryDirectory(prefix="tokmill-golden-") as folder:
        digests = current_digests(Path(folder))
    DIGESTS.write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
