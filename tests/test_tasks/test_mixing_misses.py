"""What whole documents miss of a request, how splitting meets it, and where rounding meets a limit."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.test_tasks.fabricated import encoded_corpus, made, numbered, packed_corpus
from tests.test_tasks.planned import Planned, assert_shares_hold
from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.kernels.drawing import Course, Rule, draw_times
from tokmill.tasks.kernels.interleave import EMPTY, FRESH, Clock, Curve, Lanes, weave
from tokmill.tasks.mixing.quotas import settle
from tokmill.tasks.mixing.stage import MIX, MixParams

LONG = {"a": [[100] * 2000], "b": [[45_000] * 3]}
"""Sources of which the second is asked for a fiftieth of one document."""
FEW = {"weights": {"a": 99, "b": 1}, "total_tokens": 100_000}


def test_what_misses_may_be_refused_with_what_would_do():
    with pytest.raises(MixingError) as raised:
        Planned(LONG, on_miss="fail", **FEW)
    assert str(raised.value) == (
        "mix: 'b' gives 45000 tokens (31.25%), and 1000 (1.00%) were asked for; 144000 tokens come, and "
        "100000 were asked for: documents are whole, and tolerance=0.01. Feasible: long_documents='split', "
        "which ends each source's last document at its quota; or tolerance of at least 44.0000; or "
        "on_miss='warn'"
    )
    Planned(LONG, on_miss="fail", tolerance=44.0, **FEW)
    split = Planned(LONG, on_miss="fail", long_documents="split", **FEW)
    assert [entry.drawn_tokens for entry in split.manifest.sources] == [99_000, 1000]
    became = {(account.source, account.unit): account.became for account in split.accounts}
    rest = {"repeated": 0, "dropped:empty": 0}
    assert became["b", "tokens"] == {"kept": 1000, **rest, "dropped:not_drawn": 134_000}
    assert became["b", "documents"] == {"kept": 1, **rest, "dropped:not_drawn": 2}


CORPORA = st.dictionaries(
    st.sampled_from("abcd"),
    st.lists(st.integers(1, 90), min_size=1, max_size=20).map(lambda n: [n]),
    min_size=1,
)


@given(CORPORA, st.data())
def test_splitting_meets_every_request_to_the_token(corpus, data):
    sizes = {source: sum(map(sum, shards)) for source, shards in corpus.items()}
    weights = {source: data.draw(st.integers(1, 50)) for source in corpus}
    total = data.draw(st.integers(1, 3 * sum(sizes.values())))
    floors = {source: data.draw(st.sampled_from([0.0, 0.27, 1.0])) for source in corpus}
    curriculum = data.draw(st.sampled_from([None, {"difficulty": "length", "order": "easy_to_hard"}]))
    params = {"weights": weights, "total_tokens": total, "max_repetition": 1000.0, "min_epochs": floors}
    try:
        settle(MixParams(**params), sizes)
    except MixingError:
        assume(False)
    found = Planned(corpus, long_documents="split", on_miss="fail", curriculum=curriculum, **params)
    drawn = {entry.source: entry.drawn_tokens for entry in found.manifest.sources}
    for source, weight in weights.items():
        assert abs(drawn[source] - total * weight / sum(weights.values())) < max(1, len(weights) - 1)
        assert drawn[source] >= floors[source] * sizes[source]
    assert total <= sum(drawn.values()) <= total + len(weights) - 1  # a source gives a token at least
    assert all(account.balanced for account in found.accounts)
    assert_shares_hold(found)


@given(CORPORA, st.data())
def test_whole_documents_are_warned_of_where_and_only_where_they_miss(corpus, data):
    sizes = {source: sum(map(sum, shards)) for source, shards in corpus.items()}
    weights = {source: data.draw(st.integers(1, 50)) for source in corpus}
    total = data.draw(st.integers(1, sum(sizes.values())))
    tolerance = data.draw(st.sampled_from([0, 0.01, 0.2]))
    found = Planned(corpus, weights=weights, total_tokens=total, max_repetition=1000.0, tolerance=tolerance)
    missed = []
    for entry in found.manifest.sources:
        off = abs(entry.drawn_tokens - entry.quota_tokens)
        missed += [f"'{entry.source}'"] if off > max(1, tolerance * entry.quota_tokens) else []
    quotas = sum(entry.quota_tokens for entry in found.manifest.sources)
    off = abs(found.manifest.num_tokens - quotas)
    missed += [str(found.manifest.num_tokens)] if off > max(len(weights), tolerance * quotas) else []
    assert [warning.split()[0] for warning in found.manifest.warnings] == missed


def test_min_epochs_that_whole_documents_cannot_reach_is_warned_of():
    params = {"weights": {"a": 1, "b": 1}, "max_repetition": {"a": 1, "b": 1.5}, "min_epochs": {"b": 1.5}}
    corpus = {"a": [[1] * 50], "b": [[10, 10, 10]]}
    found = Planned(corpus, total_tokens=90, **params)
    assert found.manifest.warnings[:2] == [
        "'b' gives 40 tokens (47.06%), and 45 (50.00%) were asked for",
        "min_epochs=1.5 of 'b' asks for 45 tokens of it, and 40 come",
    ]
    split = Planned(corpus, total_tokens=90, long_documents="split", **params)
    assert [entry.drawn_tokens for entry in split.manifest.sources] == [45, 45]


def test_a_split_document_is_packed_up_to_its_quota(tmp_path):
    documents = {"a": [numbered([40])], "b": [numbered([30], first=100)]}
    mix = {"weights": {"a": 1, "b": 1}, "total_tokens": 40, "long_documents": "split"}
    _, outcome, packed = packed_corpus(tmp_path, documents, mix, end_id=0, sequence_length=8)
    tokens = [token for sequence in PackedReader.open(packed) for token in sequence.input_ids.tolist()]
    assert sorted(tokens) == [*range(20), *range(100, 120)]  # and no end token, since neither is at its end
    assert outcome.metrics["num_sequences"] == 5


def test_a_source_of_which_every_document_was_dropped_is_told_why(tmp_path):
    corpus = encoded_corpus(tmp_path, {"a": [numbered([9, 9])], "b": [[]]})
    path = corpus.path / "encoded.json"
    manifest = json.loads(path.read_text())
    manifest["sources"][1]["statistics"]["num_dropped_documents"] = 7
    path.write_text(json.dumps(manifest))
    late = {"schedule": [(0, {"a": 1, "b": 0}), (0.5, {"a": 1, "b": 1})]}
    for rule in ({"weights": {"a": 1, "b": 1}}, late):
        with pytest.raises(MixingError, match=r"its 7 documents have fewer than encode\.min_tokens and were"):
            made(MIX, MixParams(**rule), tmp_path / f"mixture-{next(iter(rule))}", **corpus.inputs)
    made(MIX, MixParams(weights={"a": 1, "b": 0}), tmp_path / "without", **corpus.inputs)


@pytest.mark.parametrize("copies", [1, 3, 7, 1000, 65_535])
def test_the_greatest_lots_are_drawn_last(copies):
    lots = np.array(
        [0, 1 << 63, (1 << 64) - 1 - (1 << 12), (1 << 64) - 1 - (1 << 11), (1 << 64) - 1], np.uint64
    )
    knots, shares = np.array([0.0, 100.0]), np.ones(1)
    course = Course(knots, shares, shares, knots, knots, np.array([0.0, 5.0]))
    releases, times = np.empty(len(lots)), np.empty(len(lots))
    rule = Rule(kind=0, start=1.0, until=1.0, stairs=1, most=1.0)
    draw_times(np.zeros(len(lots)), lots, copies - 1, copies, rule, course, releases, times)
    assert np.isfinite(times).all()
    assert (np.diff(times) >= 0).all()


def test_a_share_that_falls_to_zero_far_along_a_run_has_places_all_the_same():
    # a's share falls from 1 to 0 in 19.9999 tokens, so 9.99995 are asked of it; beside 10^12 that rounds to
    # more than 10, and its document of 10 ends where the root is of less than 0
    before, width = 1e12, 19.9999
    after = np.nextafter(before + width / 2, np.inf)
    curve = Curve(
        knots=np.array([0.0, width]),
        firsts=np.array([1.0, 0.0]),
        lasts=np.array([0.0, 1.0]),
        sums=np.array([before, before, after, after]),
    )
    assert after - before > 10
    lanes, places = Lanes.empty(2, 1), np.empty(4, dtype=np.int64)
    lanes.lengths[:], lanes.waiting[:], lanes.state[:], lanes.given[:] = 10, 1, FRESH, before
    clock = Clock(np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64))
    assert weave(curve, lanes, clock, np.inf, places) == 1
    assert lanes.state.tolist()[0] == EMPTY
    assert np.isfinite(lanes.finishes).all()
    assert lanes.finishes[0] == pytest.approx(width, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "copies"), [("linear", 65_536), ("sqrt", 65_536), ("exp", 68_611)])
def test_more_copies_than_epochs_can_be_written_are_refused(kind, copies):
    rules = {"max_repetition": 1e6, "curriculum": {"difficulty": "length", "competence": kind}}
    with pytest.raises(MixingError, match=f"'a' would be drawn {copies} times; at most 65535"):
        Planned({"a": [[1]]}, total_tokens=65_536, **rules)
    most = 65_535 * 65_536 // copies
    assert len(Planned({"a": [[1]]}, total_tokens=most, **rules).plan.epoch) == most
