"""Vocabularies that grow and shrink: old ids and other texts stay, and a plan says where ids came from."""

import json

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.adaptation.continuation import continued
from tokmill.tokenizer.adaptation.extend import Changed, check_terms, extended, mine
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan
from tokmill.tokenizer.adaptation.trim import trimmed
from tokmill.tokenizer.core.errors import FormatError, VocabularyError

SPECIALS = ["<|end|>"]


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=360, special_tokens=SPECIALS)


def grown(tok: Tokenizer, *terms: str) -> Changed:
    found, _ = check_terms(tok, terms, "both")
    return extended(tok, found)


def test_terms_are_tokens_with_and_without_a_blank(trained):
    changed = grown(trained, "myocarditis")
    tok = changed.tokenizer
    size = trained.vocab_size
    assert tok.vocab_size == size + 2
    assert tok.encode(" myocarditis") == [size]
    assert tok.encode("myocarditis") == [size + 1]
    assert tok.encode("the myocarditis, then") == [
        *trained.encode("the"),
        size,
        *trained.encode(", then"),
    ]
    # within a longer word it is not a token
    assert tok.encode("premyocarditis") == trained.encode("premyocarditis")
    assert changed.plan.sources == {
        size: tuple(trained.encode(" myocarditis")),
        size + 1: tuple(trained.encode("myocarditis")),
    }


@given(
    text=st.text(max_size=60), words=st.lists(st.sampled_from(["fox", "foxes", "zebra", "ça"]), max_size=4)
)
def test_other_texts_keep_their_ids_and_all_come_back(trained, text, words):
    tok = grown(trained, "zebra", "ça").tokenizer
    mixed = text.join(f" {word}" for word in words)
    assert tok.decode(tok.encode(mixed)) == mixed
    assert {**trained.vocab, **tok.vocab} == tok.vocab
    if "zebra" not in text and "ça" not in text:
        assert tok.encode(text) == trained.encode(text)


def test_terms_that_are_not_added_are_named_with_the_reason(trained):
    found, skipped = check_terms(trained, ["the", "two words", "zebra"], "both")
    assert [term.token for term in found] == [b" zebra", b"zebra"]
    reasons = {one.given: one.reason for one in skipped}
    assert reasons[" the"] == "it is one token already"
    assert reasons["two words"] == "the split pattern cuts it into 'two' ' words'"


def test_terms_that_normalization_makes_one_are_refused():
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=300, normalizer="nfkc+lowercase")
    with pytest.raises(VocabularyError, match="the same after normalization"):
        check_terms(tok, ["Zebra", "ｚebra"], "bare")
    for term in ("", " ", " x", "x\n"):
        with pytest.raises(VocabularyError, match="without blanks at its ends"):
            check_terms(tok, [term], "both")


@pytest.mark.parametrize("family", ["unigram", "char_bpe", "wordpiece", "character_level"])
def test_other_families_are_refused_by_name(family):
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=85, family=family, allow_smaller=True)
    with pytest.raises(VocabularyError, match=f"a {family} vocabulary cannot be changed"):
        extended(tok, [])
    with pytest.raises(VocabularyError, match=f"a {family} vocabulary cannot be changed"):
        trimmed(tok, np.zeros(tok.vocab_size, np.uint64), 80)


def test_what_is_mined_saves_most_tokens(trained):
    later = "\U00010d50\U00010d51"  # letters since Unicode 16, which Python 3.13 does not know
    texts = [f"zebra zebra okapi okapi okapi 123456 ~~~~ gnu {later} {later}"] * 3
    counts = tokenizer.count_pretokens(texts, split_pattern="gpt2", special_tokens=SPECIALS)
    found = mine(trained, counts, 3)
    saved = {
        token: count * (len(trained.encode(token)) - 1)
        for token, count in counts.to_dict().items()
        if regex.search(r"\p{L}", token.decode()) and len(trained.encode(token)) > 1
    }
    best = sorted(saved, key=lambda token: (-saved[token], token))[:3]
    assert [term.token for term in found] == best
    tok = extended(trained, found).tokenizer
    before, after = (sum(len(one.encode(text)) for text in texts) for one in (trained, tok))
    assert before - after == sum(saved[token] for token in best)


def test_trimming_takes_the_rarest_leaves():
    # u g 20 times, h ug 15, p ug 5, hug s 5: leaves are pug and hugs
    tok = tokenizer.train_from_counts(
        {b"hug": 10, b"pug": 5, b"hugs": 4}, vocab_size=256 + 4, special_tokens=[]
    )
    assert [left + right for left, right in tok.merges] == [b"ug", b"hug", b"pug", b"hugs"]
    counts = np.zeros(tok.vocab_size, np.uint64)
    for token, number in ((b"hug", 10), (b"pug", 5), (b"hugs", 4)):
        counts[tok.vocab[token]] = number
    one, two, three = (trimmed(tok, counts, 260 - gone) for gone in (1, 2, 3))
    assert set(tok.vocab) - set(one.tokenizer.vocab) == {b"hugs"}
    assert set(tok.vocab) - set(two.tokenizer.vocab) == {b"hugs", b"pug"}
    # hug occurs 14 times now, and ug, which it is made of, is no leaf
    assert set(tok.vocab) - set(three.tokenizer.vocab) == {b"hugs", b"pug", b"hug"}
    assert three.tokenizer.merges == [(b"u", b"g")]
    assert three.plan.kept.tolist() == [*range(256), 256]


def test_what_a_special_token_is_merged_from_stays():
    vocab = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"abc": 257, b"xy": 258}
    merges = [(b"a", b"b"), (b"ab", b"c"), (b"x", b"y")]
    tok = Tokenizer.from_vocab(vocab, merges, special_tokens={"abc": 257})
    small = trimmed(tok, np.zeros(259, np.uint64), 258).tokenizer
    assert set(tok.vocab) - set(small.vocab) == {b"xy"}
    with pytest.raises(VocabularyError, match=r"only 1 of 2 tokens can be taken away.*at least 258"):
        trimmed(tok, np.zeros(259, np.uint64), 257)


def test_added_tokens_stay_and_are_no_part_of_terms(trained):
    added = {"<think>": trained.vocab_size, "the": trained.vocab[b"the"]}
    tok = Tokenizer.from_spec(trained.spec() | {"added_tokens": added, "version": 3})
    counts = np.zeros(tok.vocab_size, np.uint64)
    small = trimmed(tok, counts, 256 + len(tok.special_tokens) + 2 + 2).tokenizer
    grown = extended(small, check_terms(small, ["foxglove"], "both")[0]).tokenizer
    for changed in (small, grown):
        assert [*changed.added_tokens] == ["<think>", "the"]
        assert changed.encode("<think>the") == [*changed.added_tokens.values()]
    skipped = check_terms(tok, ["a<think>b"], "both")[1]
    assert {one.reason for one in skipped} == {
        "it holds the added token '<think>', at which text is cut first"
    }


@given(size=st.integers(257, 359), text=st.text(max_size=80), seed=st.integers(0, 9))
def test_trimmed_vocabularies_are_dense_and_lose_no_text(trained, size, text, seed):
    counts = np.random.default_rng(seed).integers(0, 50, trained.vocab_size).astype(np.uint64)
    changed = trimmed(trained, counts, size)
    tok = changed.tokenizer
    assert tok.vocab_size == size == len(tok.vocab)
    assert tok.decode(tok.encode(text)) == text
    assert set(tok.vocab) < set(trained.vocab)
    kept = changed.plan.kept
    assert [tok.token_bytes(new) for new in range(size)] == [
        trained.token_bytes(old) for old in kept.tolist()
    ]
    assert (np.diff(kept) > 0).all()
    assert tok.special_tokens.keys() == trained.special_tokens.keys()


@pytest.mark.parametrize("size", [256, 360, 1000])
def test_sizes_that_cannot_be_had_are_refused(trained, size):
    with pytest.raises(VocabularyError, match=f"trim: {size} must be from 257"):
        trimmed(trained, np.zeros(trained.vocab_size, np.uint64), size)


@pytest.mark.parametrize("what", ["extended", "trimmed"])
def test_plans_are_read_as_they_were_written(trained, what):
    counts = np.arange(trained.vocab_size, dtype=np.uint64)
    changed = grown(trained, "zebra") if what == "extended" else trimmed(trained, counts, 300)
    spec = json.loads(json.dumps(changed.plan.to_spec()))
    again = EmbeddingPlan.from_spec(spec, "plan")
    assert again.to_spec() == spec
    assert again.kept.tolist() == changed.plan.kept.tolist()
    assert again.sources == changed.plan.sources
    assert len(again.kept) == changed.tokenizer.vocab_size


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"version": 2},
        {"kept": [[0, 0, 999]]},
        {"kept": [[0, 355, 10]]},
        {"kept": [[0, -1, 3]]},
        {"kept": "all"},
        {"kept": []},
        {"new": []},
        {"new": [{"id": 360, "from": [999], "bytes": [1]}, {"id": 361, "from": [1], "bytes": [1]}]},
        {"new": [{"id": 360, "from": [1], "bytes": []}, {"id": 361, "from": [1], "bytes": [1]}]},
        *(
            {"new": [{"id": new, "from": [1, 2], "bytes": sizes} for new in (360, 361)]}
            for sizes in ([0, 0], [-1, 3], [10**400, 1])
        ),
        {"old_size": None},
        {"new_size": 10**15},
    ],
)
def test_broken_plans_are_refused(trained, change):
    spec = {**grown(trained, "zebra").plan.to_spec(), **change}
    with pytest.raises(FormatError, match=r"^plan: "):
        EmbeddingPlan.from_spec(spec, "plan")


def counted(texts: list[str]) -> tokenizer.PretokenCounts:
    return tokenizer.count_pretokens(texts, split_pattern="gpt2", special_tokens=SPECIALS)


def test_merges_by_hand():
    # u g 19 times is a merge; then h ug 14, p ug 5, ug s 4 are left
    counts = tokenizer.PretokenCounts.from_dict({b"hug": 10, b"pug": 5, b"hugs": 4})
    tok = tokenizer.train_from_counts(counts, vocab_size=257)
    changed = continued(tok, counts, 3)
    made = changed.tokenizer
    assert made.merges == [(b"u", b"g"), (b"h", b"ug"), (b"p", b"ug"), (b"hug", b"s")]
    h, p, s, ug = (tok.vocab[token] for token in (b"h", b"p", b"s", b"ug"))
    assert changed.plan.sources == {257: (h, ug), 258: (p, ug), 259: (h, ug, s)}
    assert continued(tok, counts, 99, least=5).tokenizer.merges == made.merges[:3]
    with pytest.raises(VocabularyError, match="no two neighbouring tokens occur 20 times"):
        continued(tok, counts, 1, least=20)


@given(texts=st.lists(st.text("ab é", max_size=30), min_size=1, max_size=6), number=st.integers(0, 20))
@settings(max_examples=30)
def test_going_on_gives_what_a_longer_training_gives(texts, number):
    counts = counted([*texts, "abababab aaaa bbaa éé é"])
    how = {"tie_break": "lowest_ids", "allow_smaller": True}
    short, long = (
        tokenizer.train_from_counts(counts, vocab_size=size, **how) for size in (256 + number, 256 + 50)
    )
    if long.vocab_size > short.vocab_size:
        assert continued(short, counts, 50 - number, least=1).tokenizer.spec() == long.spec()


@pytest.fixture(scope="module")
def merged(trained: Tokenizer) -> Changed:
    return continued(trained, counted(["zebras and okapis, zebras and gnus; " * 3]), 12)


@given(text=st.text(max_size=60))
def test_new_merges_only_join_old_tokens(trained, merged, text):
    tok = merged.tokenizer
    mixed = f"{text} zebras{text}okapis"
    assert tok.decode(tok.encode(mixed)) == mixed
    whole = [old for new in tok.encode(mixed) for old in merged.plan.sources.get(new, (new,))]
    assert whole == trained.encode(mixed)
    for new, ids in merged.plan.sources.items():
        assert tuple(trained.encode(tok.token_bytes(new))) == ids


def test_merges_after_terms_have_one_plan(trained):
    first = grown(trained, "zebra")
    then = continued(first.tokenizer, counted(["zebras zebra okapi " * 3]), 5)
    plan = first.plan.then(then.plan, trained.definition.tokens)
    assert len(plan.kept) == then.tokenizer.vocab_size == trained.vocab_size + 2 + 5
    assert plan.kept.tolist()[: trained.vocab_size] == [*range(trained.vocab_size)]
    for new, ids in plan.sources.items():
        assert tuple(trained.encode(then.tokenizer.token_bytes(new))) == ids
    assert then.tokenizer.encode("zebra") == first.tokenizer.encode("zebra")
