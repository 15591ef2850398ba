"""Re-planning: the ledger by hand, the rest of a mixture, other weights and sources, nothing lost."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.test_tasks.fabricated import encoded_corpus, made, numbered, pack_mixture, published
from tests.test_tasks.planned import rows
from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.formats.mixture import Ledger, Mixture
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.mixing.consume import CONSUME, ConsumeParams
from tokmill.tasks.mixing.stage import MIX, MixParams
from tokmill.tasks.takedown.stage import EXCLUDE, TAKEDOWN, TakedownParams


class Run:
    """A training run over a made-up corpus: its mixtures one after the other."""

    def __init__(self, folder, lengths):
        self.folder, self.count, self.ledger = folder, 0, None
        self.encode(lengths)

    def encode(self, lengths):
        """Encode a corpus; documents' tokens count up, so that equal lengths make equal shards."""
        folder = self.folder / f"corpus-{self.count}"
        folder.mkdir()
        documents = {
            source: [numbered(shard, first=1000 * k) for k, shard in enumerate(shards)]
            for source, shards in lengths.items()
        }
        self.corpus = encoded_corpus(folder, documents, vocab_size=60_000)

    def mix(self, **params):
        """Plan the run, or what is left of it; returns the mixture."""
        self.count += 1
        self.mixture = self.folder / f"mixture-{self.count}"
        before = {} if self.ledger is None else {"ledger": self.ledger}
        self.outcome = made(MIX, MixParams(**params), self.mixture, **self.corpus.inputs, **before)
        return Mixture.open(self.mixture)

    def consume(self, tokens, packed=None, **packing):
        """Read the run up to so many tokens, by default in the order of the mixture; returns the ledger."""
        self.count += 1
        out = self.folder / f"ledger-{self.count}"
        before = {} if self.ledger is None else {"ledger": self.ledger}
        packed = packed or self.packed(**{"sequence_length": 8, "shuffle_window": 0} | packing)
        inputs = {"mixture": self.mixture, "packed": packed, **self.corpus.inputs, **before}
        self.outcome = made(CONSUME, ConsumeParams(consumed_tokens=tokens), out, **inputs)
        self.ledger = out
        return Ledger.open(out)

    @property
    def became(self):
        """The accounts of the last stage by unit, of all sources together."""
        return {account.unit: account.became for account in self.outcome.accounts}

    def packed(self, **params):
        """Pack the mixture; returns the directory."""
        folder = self.folder / f"packing-{self.count}"
        folder.mkdir()
        return pack_mixture(self.corpus, self.mixture, folder, **params)[1]


def split(plan, tokens):
    """The rows that a number of tokens reach into, and the others; the last one's rest is its own."""
    consumed, left = [], []
    for source, shard, document, epoch, length in rows(plan):
        (consumed if tokens > 0 else left).append((source, shard, document, epoch, length))
        tokens -= length
    return consumed, left


def test_a_ledger_by_hand(tmp_path):
    run = Run(tmp_path, {"a": [[10, 10], [10]], "b": [[10]]})
    plan = run.mix(seed=1).plan()
    # 25 tokens: two documents and half of the third
    ledger = run.consume(25)
    consumed, _ = split(plan, 25)
    assert len(consumed) == 3
    assert (ledger.manifest.consumed_tokens, ledger.manifest.position) == (25, 30)
    assert [(cut.start, cut.num_tokens) for cut in ledger.manifest.cuts] == [(5, 5)]
    for index, source in enumerate(ledger.manifest.sources):
        for number, shard in enumerate(source.shards):
            times = Counter(row[2] for row in consumed if row[:2] == (index, number))
            assert ledger.consumed(shard).tolist() == [times[k] for k in range(shard.num_documents)]
        assert source.given_tokens == 10 * sum(row[0] == index for row in consumed)
    assert ledger.by_source["a"].requested_tokens == pytest.approx(22.5)


@pytest.mark.parametrize("consumed_tokens", [1, 40, 118])
def test_the_rest_of_a_mixture_whose_long_documents_are_split(tmp_path, consumed_tokens):
    run = Run(tmp_path, {"a": [[10, 7, 12], [9, 30]], "b": [[50, 40]]})
    params = {"weights": {"a": 1, "b": 2}, "long_documents": "split", "max_repetition": 2.0}
    params |= {"total_tokens": 121}
    mixture = run.mix(**params)
    assert [entry.drawn_tokens for entry in mixture.manifest.sources] == [40, 81]
    whole = mixture.plan()
    run.consume(consumed_tokens)
    again = run.mix(**params)
    consumed, left = split(whole, consumed_tokens)
    found = rows(again.plan())
    rest = sum(row[4] for row in consumed) - consumed_tokens
    assert sum(row[4] for row in found) == 121 - consumed_tokens
    assert found[int(rest > 0) :] == left
    assert not again.manifest.warnings


LENGTHS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=12), min_size=1, max_size=3)
UNIMAX = {
    "curriculum": {"difficulty": "length", "order": "easy_to_hard"},
    "method": "unimax",
    "max_repetition": 3,
}
RULES = st.sampled_from(
    [
        {"temperature": 2.0, "max_repetition": 2.5},
        {
            "schedule": [(0, {"a": 1, "b": 3}), (0.5, {"a": 2, "b": 1})],
            "change": "linear",
            "max_repetition": 2.0,
        },
        {"curriculum": {"difficulty": "length", "start": 0.4}, "max_repetition": 2.0},
        UNIMAX,
    ]
)


@settings(max_examples=15)
@given(LENGTHS, LENGTHS, RULES, st.floats(0, 1), st.integers(0, 9))
@example([[1]], [[1, 1]], UNIMAX, 1.0, 0)
@example([[10, 7, 12], [9, 30]], [[11, 4] * 5], {"weights": {"a": 1, "b": 2}, "max_repetition": 3.0}, 0.7, 5)
def test_resumed_equals_undisturbed(tmp_path_factory, a, b, rule, part, seed):
    run = Run(tmp_path_factory.mktemp("run"), {"a": a, "b": b})
    whole = run.mix(seed=seed, **rule)
    tokens = int(part * whole.manifest.num_tokens * 0.999)
    run.consume(tokens)
    try:
        mixture = run.mix(seed=seed, **rule)
    except MixingError:
        # whole documents go beyond what is asked for by less than one a source, and there the run is already
        assert whole.manifest.num_tokens - tokens <= 2 * whole.manifest.longest_document_tokens
        return
    consumed, left = split(whole.plan(), tokens)
    rest = sum(row[4] for row in consumed) - tokens
    # the document in the middle of which it stopped comes first, with what is left of it
    expected = [(*row[:4], rest) for row in consumed[-1:] if rest] + left
    again, manifest = rows(mixture.plan()), mixture.manifest
    assert sorted(again) == sorted(expected)
    assert again[:-12] == expected[:-12]  # where sources run out the last documents may change places
    assert manifest.first_position == tokens
    assert manifest.first_document_starts == tuple(row[4] - rest for row in consumed[-1:] if rest)
    given_before = [sum(row[4] for row in consumed if row[0] == index) for index in range(2)]
    assert [entry.given_before_tokens for entry in manifest.sources] == given_before


@settings(max_examples=20)
@given(LENGTHS, LENGTHS, RULES, RULES, st.floats(0, 1), st.integers(0, 9))
def test_under_other_rules_nothing_comes_again_before_its_turn(
    tmp_path_factory, a, b, first, second, part, seed
):
    run = Run(tmp_path_factory.mktemp("run"), {"a": a, "b": b})
    before = run.mix(seed=seed, **first)
    tokens = int(part * before.manifest.num_tokens)
    ledger = run.consume(tokens)
    times = Counter(row[:3] for row in split(before.plan(), tokens)[0])
    try:
        again = rows(run.mix(seed=seed + 1, **second).plan())
    except MixingError:  # the other rules allow no more than was consumed, or let in too little
        return
    assert all(account.balanced for account in run.outcome.accounts)
    for row in again[len(ledger.manifest.cuts) :]:
        assert row[3] == times[row[:3]] < 3
        times[row[:3]] += 1
    paced_before, paced_now = ("start" in rules.get("curriculum", {}) for rules in (first, second))
    if paced_now:
        return  # a lottery: what is drawn twice may come before what is not eligible yet
    for index, shards in enumerate((a, b)):
        counts = [times[index, s, d] for s, shard in enumerate(shards) for d in range(len(shard))]
        assert max(counts) - min(counts) <= 1 + paced_before


def test_schedules_count_from_the_beginning_of_the_run(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 60], "b": [[10] * 60]})
    run.mix(weights={"a": 1, "b": 0}, total_tokens=400)
    run.consume(200)
    schedule = [(0, {"a": 1, "b": 0}), (300, {"a": 0, "b": 1})]
    again = run.mix(schedule=schedule, schedule_unit="tokens", total_tokens=400).plan()
    assert again.source.tolist() == [0] * 10 + [1] * 10


def test_a_new_source_begins_where_the_mixture_goes_on(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 60]})
    before = run.mix(total_tokens=200).plan()
    run.consume(100)
    run.encode({"a": [[10] * 60, [10] * 5], "b": [[10] * 60]})
    again = run.mix(weights={"a": 1, "b": 1}, total_tokens=300)
    assert set(rows(again.plan())).isdisjoint(rows(before)[:10])
    # 200 more tokens, a half of each; nothing of b is made up for
    assert [entry.drawn_tokens for entry in again.manifest.sources] == [100, 100]
    assert again.manifest.sources[1].most_ahead_tokens <= 10


def test_more_than_the_mixture_has_cannot_be_consumed(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 6]})
    run.mix()
    with pytest.raises(MixingError, match=r"consumed_tokens=61, but the packed sequences end at token 60 of"):
        run.consume(61)
    run.consume(20)
    run.mix()
    run.ledger = None
    with pytest.raises(MixingError, match="begins at token 20 of the run and the ledger ends at 0"):
        run.consume(30)


def test_an_encoding_without_the_shards_that_were_consumed_is_refused(tmp_path):
    run = Run(tmp_path, {"a": [[10, 10], [10]]})
    run.mix()
    run.consume(30)
    run.encode({"a": [[10, 11], [10]]})
    with pytest.raises(MixingError, match=r"2 documents of source 'a' .* not in this encoding"):
        run.mix()


def taken(row):
    """The document of a row of a plan, as a takedown lists it."""
    return {"name": "x", "source": "a", "file": "f", "row": 0, "shard": 0, "ordinal": 2 * row[2]}


def test_what_was_begun_before_keeps_its_place_unless_it_is_excluded(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 6]})
    *_, last = plan = rows(run.mix().plan())
    run.consume(25)
    run.mix()
    for row, starts in ((plan[2], ()), (last, (5,))):
        out = tmp_path / f"without-{row[2]}"
        made(EXCLUDE, TakedownParams(), out, mixture=run.mixture, documents=[taken(row)], **run.corpus.inputs)
        assert Mixture.open(out).manifest.first_document_starts == starts


def test_documents_that_were_taken_down_from_packed_sequences_do_not_come_again(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 6]})
    plan = rows(run.mix().plan())
    packed = published(run.packed(sequence_length=8), tmp_path / "store")
    made(TAKEDOWN, TakedownParams(), tmp_path / "without", packed=packed, documents=[taken(plan[-1])])
    run.consume(0, packed=tmp_path / "without")
    again = rows(run.mix(max_repetition=2.0).plan())
    assert {row[2] for row in again} == {row[2] for row in plan[:-1]}


def test_accounts_say_what_was_consumed_before(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 6]})
    run.mix(seed=2)
    run.consume(25)
    (entry,) = run.mix(seed=2).manifest.sources
    assert entry.num_documents == 6
    amounts = {end: amount for end, amount in run.became["documents"].items() if amount}
    assert amounts == {"kept": 4, "dropped:consumed_before": 2}
    amounts = {end: amount for end, amount in run.became["tokens"].items() if amount}
    assert amounts == {"kept": 35, "dropped:consumed_before": 25}
    run.consume(60)
    assert run.became == {"documents": {"consumed": 4, "left": 0}, "tokens": {"consumed": 35, "left": 0}}


def test_accounts_say_what_was_taken_down_before_anything_was_consumed(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 6]})
    first = rows(run.mix().plan())[0]
    out = tmp_path / "excluded"
    made(EXCLUDE, TakedownParams(), out, mixture=run.mixture, documents=[taken(first)], **run.corpus.inputs)
    run.mixture = out
    run.consume(0)
    run.mix()
    for unit, amount in (("documents", 1), ("tokens", 10)):
        became = run.became[unit]
        assert (became["dropped:taken_down"], became["dropped:not_drawn"]) == (amount, 0)


@pytest.mark.parametrize("strategy", ["concat", "greedy", "best_fit"])
@pytest.mark.parametrize("stops", [(200,), (150, 400)])
def test_shuffled_sequences_are_read_to_the_end_by_two_mixtures(tmp_path, strategy, stops):
    sizes = {"a": [[90, 200, 40], [5] * 30], "b": [[7] * 20, [120]]}
    run = Run(tmp_path, sizes)
    packing = {"sequence_length": 16, "strategy": strategy, "shuffle_window": 1024}
    seen = Counter()

    def read(packed, num_tokens):
        reader = PackedReader.open(packed)
        for index in range(len(reader)):
            for piece in reader.provenance(index):
                taken = max(0, min(piece.length, num_tokens))
                num_tokens -= taken
                place, start = (piece.source, piece.shard, piece.document), piece.document_start
                seen.update((*place, start + k) for k in range(taken))

    run.mix()
    for before, stop in zip((0, *stops), stops, strict=False):
        ledger = run.consume(stop, **packing)
        read(run.folder / f"packing-{run.count}" / "packed", stop - before)
        assert ledger.manifest.consumed_tokens == sum(seen.values()) == stop
        assert len(ledger.manifest.cuts) > 1
        run.mix()
        assert {account.became["dropped:not_drawn"] for account in run.outcome.accounts} == {0}
    run.count += 1
    read(run.packed(**packing), 1 << 40)
    assert seen == Counter(
        (source, shard, document, place)
        for source, shards in sizes.items()
        for shard, documents in enumerate(shards)
        for document, length in enumerate(documents)
        for place in range(length)
    )


def test_max_repetition_counts_what_was_before(tmp_path):
    run = Run(tmp_path, {"a": [[10] * 6], "b": [[10] * 6]})
    run.mix(weights={"a": 1, "b": 0})
    run.consume(40)
    with pytest.raises(MixingError, match=r"total_tokens=120 needs 80 tokens of 'a'"):
        run.mix(weights={"a": 1, "b": 1}, total_tokens=120)
    again = run.mix(weights={"a": 1, "b": 1})
    assert [entry.drawn_tokens for entry in again.manifest.sources] == [20, 20]
