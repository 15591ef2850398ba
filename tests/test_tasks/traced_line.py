"""A small packed artifact in a real store, made from known texts."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.test_tasks.whole_line import Line, LineParams
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.mixing.stage import MixParams
from tokmill.tasks.packing.stage import PackParams
from tokmill.tasks.store import Store
from tokmill.tasks.train.stage import TrainParams

WEB = [
    {"id": "first", "text": "The first page tells of rivers, and of boats on rivers."},
    {"id": "second", "text": "A second page is about mountains — höher als Türme — and goes on and on. " * 4},
    {"id": None, "text": "A page without an id of its own."},
    {"id": "twin", "text": "Twins have one id."},
    {"id": "twin", "text": "And this is the other twin."},
    {"id": "tiny", "text": "x"},
    {"id": "broken", "text": None},
    {"id": "notes.txt:1", "text": "Its id looks like a place in another source."},
    {"id": "last", "text": None},
]
NOTES = ["line zero", "line one is a little longer than line zero", "", "line three, 日本語 at its end"]
ESSAY = "An essay is one document in one file. " * 12
SPECIALS = ("<|endoftext|>", "<|begin|>", "<|prefix|>", "<|suffix|>", "<|middle|>")

SPECS = {
    "essays": SourceSpec(files=["essays/*.txt"], format="text"),
    "notes": SourceSpec(files=["notes/*.txt"], format="lines"),
    "web": SourceSpec(files=["web/*.jsonl"], id_column="id", on_error="quarantine"),
}


@dataclass(frozen=True)
class TracedLine:
    """The store, the folder of the texts, and the artifacts."""

    store: Store
    texts: Path
    made: dict[str, ArtifactRef]

    @property
    def packed(self) -> ArtifactRef:
        return self.made["packed"]


def traced_line(folder: Path, encode=None, mix=None, **pack) -> TracedLine:
    """Write the texts below `folder` and run every stage over them, with some parameters of three stages."""
    texts = folder / "texts"
    for name in SPECS:
        (texts / name).mkdir(parents=True)
    lines = "".join(f"{json.dumps(page, ensure_ascii=False)}\n" for page in WEB)
    (texts / "web" / "pages.jsonl").write_text(lines, encoding="utf-8")
    (texts / "notes" / "notes.txt").write_text("".join(f"{line}\n" for line in NOTES), encoding="utf-8")
    (texts / "essays" / "essay.txt").write_text(ESSAY, encoding="utf-8")
    store = Store.open(folder / "store")
    return TracedLine(store, texts, Line(store, texts, SPECS).run(line_params(encode, mix, **pack)))


def line_params(encode=None, mix=None, **pack) -> LineParams:
    """The line's parameters, with some of three stages."""
    options = {"sequence_length": 32, "strategy": "greedy", "sequences_per_shard": 4, "formats": ["memmap"]}
    return LineParams(
        train=TrainParams(vocab_size=300, special_tokens=[*SPECIALS], num_reserved=2),
        encode=EncodeParams(min_tokens=2, **encode or {}),
        mix=MixParams(**mix or {"max_repetition": 3.0, "method": "unimax", "total_tokens": 900}),
        pack=PackParams(**options | pack),
    )
