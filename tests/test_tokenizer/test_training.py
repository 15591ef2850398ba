"""Training byte-level BPE: golden merges by hand, the slow reference under every tie rule, and the laws."""

import dataclasses
import random
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts, TokenizerError, TrainingError
from tokmill.tokenizer.core import buffers, stopping
from tokmill.tokenizer.counting import FirstSeenCounter, count_texts
from tokmill.tokenizer.merging import layout, trainer
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.reference import byte_bpe as reference
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.training_options import TrainingPlan

# Sennrich et al. 2016, as CS336's first assignment works it out by hand.
SENNRICH = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}


def trained(
    counts: dict[bytes, int], num_merges: int, room: int | None = None, max_narrow: int = 65536, **rules: Any
) -> list[tuple[bytes, bytes]]:
    """Merges of counts in the order of the dictionary."""
    flat = PretokenCounts.from_dict(counts, in_order=False)
    made = BpeTrainer(flat, MergeRules(**rules), num_merges, room, max_narrow)
    made.run(num_merges)
    return made.merges()


@pytest.mark.parametrize(
    ("counts", "number", "rules", "expected"),
    [
        (SENNRICH, 6, {}, "s+t e+st o+w l+ow w+est n+e"),
        # all four pairs occur once; "zz" is greater than "za" by its second part only
        ({b"ab": 1, b"za": 1, b"zz": 1, b"by": 1}, 4, {}, "z+z z+a b+y a+b"),
        # after "ab", (ab, x) and (a, y) occur as often; "ab" > "a"
        ({b"abx": 2, b"ay": 2, b"ab": 3}, 3, {}, "a+b ab+x a+y"),
        # "!" is id 0 and "~", the last that prints, is greater
        ({b"~a": 1, b"!a": 1, b"a!": 1}, 3, {"tie_break": "lowest_ids"}, "!+a a+! ~+a"),
        # aaaa has the pair a a three times, so it beats b c, which occurs twice
        ({b"aaaa": 1, b"bc": 2}, 3, {}, "a+a b+c aa+aa"),
        ({b"ab": 3, b"cd": 2}, 5, {"min_frequency": 3}, "a+b"),
        ({b"abcd": 1}, 5, {"max_token_bytes": 2}, "c+d a+b"),
        ({b"abcd": 1}, 5, {"max_token_bytes": 1}, ""),
        ({b"yz": 1, b"zab": 1}, 3, {"tie_break": "first_seen"}, "y+z z+a za+b"),
        ({b"zab": 1, b"yz": 1}, 3, {"tie_break": "first_seen"}, "z+a za+b y+z"),
        # (b, c) stood before (c, d), but once ab is joined its first place is in the last pre-token
        ({b"abc": 1, b"cd": 2, b"ab": 4, b"bc": 1, b"xbc": 1}, 3, {"tie_break": "first_seen"}, "a+b c+d b+c"),
        ({b"xy": 0, b"ab": 1, b"xyz": 1}, 1, {"tie_break": "first_seen"}, "a+b"),
    ],
)
def test_merges_worked_out_by_hand(counts, number, rules, expected):
    assert " ".join(f"{a.decode()}+{b.decode()}" for a, b in trained(counts, number, **rules)) == expected


def test_no_merge_makes_a_special_token():
    tok = tokenizer.train_from_counts({b"<s>": 9}, vocab_size=256 + 1 + 1, special_tokens=["<s>"])
    assert tok.merges == [(b"s", b">")]
    with pytest.raises(TrainingError, match="lower vocab_size to 258"):
        tokenizer.train_from_counts({b"<s>": 9}, vocab_size=260, special_tokens=["<s>"])


counts_of_few_letters = st.dictionaries(
    st.one_of(
        st.binary(min_size=1, max_size=12),
        st.text(alphabet="ab", min_size=1, max_size=24).map(str.encode),
        st.text(alphabet="aé日", min_size=1, max_size=10).map(str.encode),
    ),
    st.integers(0, 5),
    max_size=12,
)
merge_rules = st.fixed_dictionaries(
    {
        "tie_break": st.sampled_from(["lexicographic_max", "lowest_ids", "first_seen"]),
        "min_frequency": st.integers(0, 3),
        "max_token_bytes": st.one_of(st.none(), st.integers(1, 6)),
        "forbidden": st.lists(st.sampled_from([b"ab", b"aa", b"bab", "é".encode()]), max_size=2),
    }
)


def test_ids_are_bytes_then_merges_then_specials_then_reserved():
    tok = tokenizer.train_from_counts(
        SENNRICH, vocab_size=256 + 2 + 2 + 1, special_tokens=["<b>", "<a>"], num_reserved=1
    )
    assert (tok.vocab[b"!"], tok.vocab[b" "], tok.vocab[b"\xad"]) == (0, 220, 255)
    assert (tok.vocab[b"st"], tok.vocab[b"est"]) == (256, 257)
    assert dict(tok.special_tokens) == {"<b>": 258, "<a>": 259, "<|reserved_0|>": 260}
    assert tokenizer.train_from_counts({b"ab": np.uint64(3), b"cd": np.int32(2)}, vocab_size=257).merges == [
        (b"a", b"b")
    ]
    assert tok.vocab_size == len(tok.vocab) == 261


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"vocab_size": 255}, "use at least 256"),
        ({"vocab_size": 300, "special_tokens": ["<a>", "<a>"]}, "named twice"),
        ({"vocab_size": 300, "special_tokens": "<a>"}, r"use \['<a>'\]"),
        ({"vocab_size": 300, "special_tokens": ["a"]}, "two bytes or more"),
        ({"vocab_size": 300, "special_tokens": ["<|reserved_0|>"], "num_reserved": 1}, "named twice"),
        ({"vocab_size": 300, "min_frequency": -1}, "min_frequency=-1"),
        ({"vocab_size": 300, "max_token_bytes": 0}, "max_token_bytes=0"),
        ({"vocab_size": 300, "num_reserved": -1}, "num_reserved=-1"),
        ({"vocab_size": 300, "normalizer": "nfx"}, "normalizer='nfx'"),
        ({"vocab_size": 300, "split_pattern": "gtp2"}, "did you mean gpt2"),
    ],
)
def test_parameters_that_make_no_sense(arguments, says):
    with pytest.raises(tokenizer.TokenizerError, match=says):
        tokenizer.train_from_counts(SENNRICH, **arguments)
    with pytest.raises(tokenizer.TokenizerError, match="num_threads=0 must be at least 1"):
        tokenizer.train(["a"], vocab_size=256, num_threads=0)


def test_a_sweep_says_which_size_is_too_large_and_needs_one():
    with pytest.raises(TrainingError, match="vocab_size=300 needs 44 merges; lower vocab_size to 258"):
        tokenizer.train_sweep_from_counts({b"abc": 1}, vocab_sizes=[257, 300])
    with pytest.raises(TrainingError, match="vocab_sizes is empty"):
        tokenizer.train_sweep_from_counts(SENNRICH, vocab_sizes=[])


def test_options_are_known_by_name():
    with pytest.raises(TypeError, match="vocab"):
        tokenizer.train_from_counts(SENNRICH, vocab_size=257, vocab=3)
    defaults = {field.name for field in dataclasses.fields(TrainingPlan)}
    assert {*tokenizer.TrainingOptions.__annotations__, "num_threads"} == defaults


def test_counting_takes_texts_and_the_options_of_training():
    texts = ["ABAB<END>ABAB 12", "AB 12<END>"]
    options = {"special_tokens": ["<END>"], "normalizer": "lowercase", "digits": "single"}
    counts = tokenizer.count_pretokens(texts, num_threads=2, **options)
    assert list(counts.to_dict().items()) == [(b" ", 2), (b"1", 2), (b"2", 2), (b"ab", 1), (b"abab", 2)]
    made = tokenizer.train_from_counts(counts, vocab_size=259, **options)
    assert made == tokenizer.train(texts, vocab_size=259, **options)


def test_texts_may_be_bytes_or_arrow():
    texts = ["the cat", "the hat é", ""]
    made = tokenizer.train(texts, vocab_size=260)
    assert tokenizer.train([text.encode() for text in texts], vocab_size=260) == made
    for many in (pa.array(texts), pa.chunked_array([texts[:1], texts[1:]], pa.large_string())):
        assert tokenizer.train(many, vocab_size=260, num_threads=2) == made


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ("abc", "'abc' is one text, but several are asked for"),
        (b"abc", "is one text"),
        (["a", None], "text 1: None is of type NoneType"),
        ((text for text in ["a" * 300_000, 7]), "text 1: 7 is of type int"),
        (None, "of type NoneType, but must be a list of texts"),
        (pa.array([1, 2]), "got int64"),
        (pa.array(["a", None]), "string 1 is null"),
    ],
)
def test_what_is_no_text_is_not_trained_on(texts, says):
    with pytest.raises(TokenizerError, match=says):
        tokenizer.train(texts, vocab_size=256)
    with pytest.raises(TokenizerError, match="text"):
        tokenizer.count_pretokens("abc")


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({b"ab": 1.5}, "b'ab' has 1.5, but a count is an integer"),
        ({b"ab": -1}, "b'ab' has -1"),
        ({b"ab": 1 << 64}, "from 0 to"),
        ({"ab": 1}, "'ab' must be bytes"),
        ([b"ab"], "list must be a mapping"),
    ],
)
def test_counts_that_are_none(counts, says):
    with pytest.raises(TokenizerError, match=says):
        tokenizer.train_from_counts(counts, vocab_size=256)


@given(
    counts=counts_of_few_letters,
    rules=merge_rules,
    shorter=st.integers(0, 20),
    more=st.integers(0, 20),
    room=st.sampled_from([None, 1, 7]),
    max_narrow=st.sampled_from([256, 258, 300, 65536]),
    shuffler=st.randoms(use_true_random=False),
)
def test_merges_are_those_of_the_reference(counts, rules, shorter, more, room, max_narrow, shuffler):
    longer = trained(counts, shorter + more, room, max_narrow, **rules)
    assert longer == reference.train_merges(counts, shorter + more, **rules)
    if rules["tie_break"] != "first_seen":  # where the order of words is part of the text
        items = list(counts.items())
        shuffler.shuffle(items)
        counts = dict(items)
    assert trained(counts, shorter, **rules) == longer[:shorter]


def random_counts(seed: int) -> dict[bytes, int]:
    """So many different pairs in so few buckets that a round needs more room than it was given at first."""
    dice = random.Random(seed)
    return {bytes(dice.randrange(256) for _ in range(10)): dice.choice(range(8, 16)) for _ in range(185)}


def words_of(letters: bytes, number: int, seed: int = 7) -> dict[bytes, int]:
    dice = random.Random(seed)
    return {bytes(dice.choices(letters, k=dice.randint(2, 14))): i % 5 for i in range(number)}


TEXTS = {
    "many pairs": (random_counts(1), 25),
    "others": (random_counts(5), 25),
    "few letters": (words_of(b"abcdefgh", 300), 200),
    "long words of few letters": (words_of(b"abcd ", 1700), 20),  # begins with a count per pair of bytes
    "pairs that occur once": ({random.Random(i).randbytes(40): 1 for i in range(100)}, 3),
}


@cache
def slowly(name: str, tie_break: Any) -> list[tuple[bytes, bytes]]:
    counts, number = TEXTS[name]
    return reference.train_merges(counts, number, tie_break=tie_break)


@pytest.mark.parametrize("tie_break", ["lexicographic_max", "first_seen"])
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    ("buckets", "room", "size"), [(None, None, None), (1, 1, 7), (2, 100, 1), (256, None, 185)]
)
def test_room_buckets_and_slices_change_no_merge(tie_break, name, buckets, room, size, monkeypatch):
    counts, number = TEXTS[name]
    if buckets:
        monkeypatch.setattr(trainer, "_num_buckets", lambda _num_cells: buckets)
        monkeypatch.setattr(trainer, "_LEAST_ROOM", 1)
    for place, constant in (
        (trainer, "_CELLS_A_SLICE"),
        (trainer, "_PLACES_A_SLICE"),
        (layout, "_WORDS_A_SLICE"),
    ):
        monkeypatch.setattr(place, constant, size or getattr(place, constant))
    for max_narrow in (256, 280, 65536):
        assert trained(counts, number, room, max_narrow, tie_break=tie_break) == slowly(name, tie_break)


def test_a_training_stops_on_request_goes_on_where_it_was_and_says_how_far_it_is():
    counts = random_counts(2)
    made = BpeTrainer(PretokenCounts.from_dict(counts), MergeRules(), 300)
    assert [made.run(number) for number in (0, 2, 1, 100)] == [0, 2, 2, 100]
    stopping.request_stop()
    try:
        with pytest.raises(stopping.StopRequested):
            made.run(300)
        with pytest.raises(stopping.StopRequested):
            tokenizer.train(["the fox"], vocab_size=257)
    finally:
        stopping.allow_work()
    assert made.run(300) == 300
    assert made.merges() == trained(dict(sorted(counts.items())), 300)
    calls: list[tuple[int, int]] = []
    tokenizer.train_from_counts(
        SENNRICH, vocab_size=256 + 6, progress=lambda now, wanted: calls.append((now, wanted))
    )
    assert calls[-1] == (6, 6)


@pytest.mark.parametrize("num_threads", [2, 8])
def test_threads_change_no_training_in_order(num_threads):
    dice = random.Random(2000)  # so many words that several parts are counted, each word in few texts
    texts = [
        " ".join("".join(dice.choices("abcdefghij", k=dice.randint(1, 24))) for _ in range(40))
        for _ in range(2000)
    ]
    options = {"vocab_size": 600, "tie_break": "first_seen"}
    assert tokenizer.train(texts, num_threads=num_threads, **options) == tokenizer.train(texts, **options)
    words = dict.fromkeys(" ".join(texts[:3]).split())
    counter = count_texts(texts, compile_pattern(r"\S+|\s+"), num_threads=num_threads, in_order=True)
    counted = [word.decode() for word in counter.take(in_order=False).to_dict() if word.strip()]
    assert counted[: len(words)] == list(words)


@pytest.mark.parametrize("length", [1, 15, 16, 300])
def test_a_counter_keeps_the_order_while_its_tables_grow(length):
    numbers = [*range(0, 5000, 7), *range(5000), *range(100)]
    strings = [number.to_bytes(2, "little").ljust(length, b"x")[:length] for number in numbers]
    counter = FirstSeenCounter()
    for some in (strings[:50], strings[50:]):
        data, offsets = buffers.pack_bytes(some)
        counter.add(data, offsets[:-1], offsets[1:], np.full(len(some), 3, np.uint64))

    found = counter.take(in_order=False)
    expected = dict.fromkeys(strings, 0)
    for string in strings:
        expected[string] += 3
    assert list(found.to_dict().items()) == list(expected.items())
    assert len(counter.take(in_order=False)) == 0


def test_a_mapping_is_taken_in_its_order():
    for words in ([b"xy", b"ab"], [b"ab", b"xy"]):
        counts = dict.fromkeys(words, 1)
        tok = tokenizer.train_from_counts(counts, vocab_size=257, tie_break="first_seen")
        assert tok.merges == [(words[0][:1], words[0][1:])]
    ordered = tokenizer.train_from_counts(
        PretokenCounts.from_dict({b"xy": 1, b"ab": 1}), vocab_size=257, tie_break="first_seen"
    )
    assert ordered.merges == [(b"a", b"b")]
