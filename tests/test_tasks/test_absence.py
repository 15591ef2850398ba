"""Why no sequence has a piece of a document: the stage that left it out, and its reason."""

from dataclasses import dataclass

import pytest

from tests.test_tasks.traced_line import SPECS, TracedLine, traced_line
from tests.test_tasks.whole_line import Line
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import TakenDocument
from tokmill.tasks.mixing.consume import CONSUME, ConsumeParams
from tokmill.tasks.mixing.stage import MIX, MixParams
from tokmill.tasks.packing.stage import PackParams
from tokmill.tasks.store.record import read_record
from tokmill.tasks.takedown.exclude import EXCLUDE, ExcludeParams
from tokmill.tasks.takedown.request import listed, take_down
from tokmill.tasks.tracing import Origins, find_documents, trace_document

MIX_OPTIONS = {"weights": {"essays": 0, "notes": 1, "web": 9}, "total_tokens": 300}
NOTES = tuple(f"notes:notes.txt:{row}" for row in (0, 1, 3))
WEB = tuple(f"web:pages.jsonl:{row}" for row in (0, 1, 2, 3, 4, 7))


@dataclass(frozen=True)
class Packings:
    """Packs mixtures of one encoding in one store."""

    traced: TracedLine
    line: Line

    def tokens(self):
        """The encoding, as the stages after it take it."""
        encoded = self.traced.made["encoded"]
        entries = [entry for entry in self.traced.store.record(encoded).inputs if entry.role == "shards"]
        paths = [self.traced.store.layout.artifact(entry.kind, entry.fingerprint) for entry in entries]
        shards = [read_record(path).ref for path in paths]
        return {"encoded": encoded, "shards": shards}

    def packed(self, mixture, **options):
        """The origins of a packing of a mixture."""
        params = PackParams(**{"sequence_length": 32, "strategy": "greedy"} | options)
        return Origins.of(self.traced.store, self.line.packed(params, mixture, self.tokens()))

    def drawn(self, mixture):
        """Source and row of every document in a mixture's plan."""
        origins = Origins.of(self.traced.store, self.traced.packed)
        found = Mixture.open(self.traced.store.path(mixture))
        plan = found.plan()
        rows = set()
        for index, shard, document in zip(plan.source, plan.shard, plan.document, strict=True):
            source = found.sources[index]
            ordinal = int(origins.encoded_shard(source, int(shard)).ordinals[document])
            file, row = origins.corpus.lookup(source, int(shard), ordinal)
            rows.add(f"{source}:{file}:{row}")
        return rows


@pytest.fixture(scope="module")
def packings(tmp_path_factory):
    """No essay is drawn, and few notes."""
    traced = traced_line(tmp_path_factory.mktemp("absent"), mix=MIX_OPTIONS)
    return Packings(traced, Line(traced.store, traced.texts, SPECS))


def absences(origins, names=(*NOTES, *WEB)):
    """The documents without a piece, each with the reason."""
    traced = [(name, document) for name in names for document in trace_document(origins, name)]
    return {name: document.absent for name, document in traced if document.absent}


def test_what_the_mixture_did_not_draw(packings):
    mixture = packings.traced.made["mixture"]
    found = absences(packings.packed(mixture))
    assert set(found) == {*NOTES, *WEB} - packings.drawn(mixture)
    assert any(name in NOTES for name in found)
    for name, why in found.items():
        assert "mixture/line@v1 did not draw it" in why, name
    origins = packings.packed(mixture)
    assert "no tokens of source 'essays'" in absences(origins, ["essays:essay.txt:0"])["essays:essay.txt:0"]


def test_what_is_too_long_for_a_sequence(packings):
    mixture = packings.traced.made["mixture"]
    found = absences(packings.packed(mixture, long_documents="drop"))
    dropped = {name: why for name, why in found.items() if name in packings.drawn(mixture)}
    assert "web:pages.jsonl:1" in dropped
    for why in dropped.values():
        assert "pack.sequence_length=32" in why


def test_what_is_in_the_last_sequence_alone(packings):
    params = MixParams(weights={"essays": 0, "notes": 1, "web": 0})
    mixture = packings.line.make(MIX, params, **packings.tokens())
    length = Mixture.open(packings.traced.store.path(mixture)).manifest.num_tokens // 2 + 1
    options = {"strategy": "concat", "last_sequence": "drop", "sequence_length": length}
    found = absences(packings.packed(mixture, **options))
    dropped = {name: why for name, why in found.items() if name in packings.drawn(mixture)}
    assert dropped
    for why in dropped.values():
        assert "pack.last_sequence" in why


def test_what_was_consumed_or_taken_down_before(packings):
    store, line, tokens = packings.traced.store, packings.line, packings.tokens()
    origins = Origins.of(store, packings.traced.packed)
    taken = find_documents(origins, ["web:twin"])[0]
    fields = {name: getattr(taken, name) for name in TakenDocument.model_fields}
    documents = listed([TakenDocument(**fields)])
    drawn = packings.traced.made["mixture"]
    mixture = line.make(EXCLUDE, ExcludeParams(), mixture=drawn, documents=documents, **tokens)
    before = packings.drawn(mixture)
    total = Mixture.open(store.path(mixture)).manifest.num_tokens
    packed = packings.packed(mixture).packed.ref
    consumed = ConsumeParams(consumed_tokens=total)
    ledger = line.make(CONSUME, consumed, mixture=mixture, packed=packed, **tokens)
    later = MixParams(weights={"essays": 0, "notes": 1, "web": 9}, total_tokens=total + 20)
    rest = line.make(MIX, later, ledger=ledger, **tokens)
    found = absences(packings.packed(rest))
    consumed = {name for name, why in found.items() if "consumed before" in why}
    assert consumed == before - packings.drawn(rest)
    assert consumed
    assert "taken down before" in found[f"web:{taken.file}:{taken.row}"]


def test_a_mixture_that_was_removed_cannot_be_asked(tmp_path):
    traced = traced_line(tmp_path, mix=MIX_OPTIONS)
    origins = Origins.of(traced.store, traced.packed)
    name = next(iter(absences(origins, NOTES)))
    present = next(name for name in WEB if not absences(origins, [name]))
    later = take_down(origins, [present]).record.ref
    traced.store.remove(traced.made["mixture"], with_dependents=True)
    (why,) = absences(Origins.of(traced.store, later), [name]).values()
    assert "removed from the store" in why
    assert "mixture/line@v1" in why
