"""Training: golden merges by hand, the slow reference, and the laws."""

import dataclasses
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer import incremental
from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts, TokenizerError, TrainingError
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.counting import count_buffers
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.reference import byte_bpe as reference
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.training_options import TrainingPlan

# Sennrich et al. 2016, as CS336's first assignment works it out by hand.
SENNRICH = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
SENNRICH_MERGES = [(b"s", b"t"), (b"e", b"st"), (b"o", b"w"), (b"l", b"ow"), (b"w", b"est"), (b"n", b"e")]


def trained(counts: dict[bytes, int], num_merges: int, **rules: object) -> list[tuple[bytes, bytes]]:
    room = rules.pop("room", None)
    flat = PretokenCounts.from_dict(counts, in_order=False)
    trainer = BpeTrainer(flat, MergeRules(**rules), num_merges, room)
    trainer.run(num_merges)
    return trainer.merges()


def test_merges_worked_out_by_hand() -> None:
    assert trained(SENNRICH, 6) == SENNRICH_MERGES


def test_the_greater_pair_of_bytes_wins_a_tie() -> None:
    # all four pairs occur once; b"zz" is greater than b"za" by its second part only
    counts = {b"ab": 1, b"za": 1, b"zz": 1, b"by": 1}
    assert trained(counts, 4) == [(b"z", b"z"), (b"z", b"a"), (b"b", b"y"), (b"a", b"b")]


def test_a_longer_token_is_greater_than_its_beginning() -> None:
    # after b"ab", (ab, x) and (a, y) occur as often; b"ab" > b"a"
    counts = {b"abx": 2, b"ay": 2, b"ab": 3}
    assert trained(counts, 3) == [(b"a", b"b"), (b"ab", b"x"), (b"a", b"y")]


def test_the_lower_ids_win_a_tie() -> None:
    # "!" is id 0 and a space, which the byte alphabet moves behind everything that prints, is id 220
    counts = {b" a": 1, b"!a": 1, b"a!": 1}
    assert trained(counts, 3, tie_break="lowest_ids") == [(b"!", b"a"), (b"a", b"!"), (b" ", b"a")]


def test_overlapping_places_count_and_are_joined_from_the_left() -> None:
    # aaaa has the pair a a three times, so it beats b c, which occurs twice
    counts = {b"aaaa": 1, b"bc": 2}
    assert trained(counts, 3) == [(b"a", b"a"), (b"b", b"c"), (b"aa", b"aa")]


def test_pairs_that_are_too_rare_are_not_merged() -> None:
    assert trained({b"ab": 3, b"cd": 2}, 5, min_frequency=3) == [(b"a", b"b")]


def test_tokens_that_are_too_long_are_not_made() -> None:
    assert trained({b"abcd": 1}, 5, max_token_bytes=2) == [(b"c", b"d"), (b"a", b"b")]
    assert trained({b"abcd": 1}, 5, max_token_bytes=1) == []


def test_no_merge_makes_a_special_token() -> None:
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
rules = st.fixed_dictionaries(
    {
        "tie_break": st.sampled_from(["lexicographic_max", "lowest_ids", "first_seen"]),
        "min_frequency": st.integers(0, 3),
        "max_token_bytes": st.one_of(st.none(), st.integers(1, 6)),
        "forbidden": st.lists(st.sampled_from([b"ab", b"aa", b"bab", "é".encode()]), max_size=2),
    }
)


@given(counts_of_few_letters, rules, st.integers(0, 40), st.sampled_from([None, 1, 7]))
def test_merges_are_those_of_the_reference(
    counts: dict[bytes, int], rules: dict, num_merges: int, room: int | None
) -> None:
    made = trained(counts, num_merges, room=room, **rules)
    assert made == reference.train_merges(counts, num_merges, **rules)


@given(counts_of_few_letters, st.integers(0, 40))
def test_the_plain_trainer_for_real_vocabularies_is_the_reference(
    counts: dict[bytes, int], num_merges: int
) -> None:
    assert incremental.train_merges(counts, num_merges) == reference.train_merges(counts, num_merges)


@given(counts_of_few_letters, st.integers(0, 20), st.integers(0, 20), st.randoms(use_true_random=False))
def test_shorter_trainings_are_prefixes_and_order_is_irrelevant(
    counts: dict[bytes, int], shorter: int, more: int, shuffler: random.Random
) -> None:
    items = list(counts.items())
    shuffler.shuffle(items)
    longer = trained(dict(items), shorter + more)
    assert trained(counts, shorter) == longer[:shorter]


@given(counts_of_few_letters, st.integers(0, 30))
def test_every_merge_makes_a_new_token(counts: dict[bytes, int], num_merges: int) -> None:
    # so Hugging Face's rule for a merge whose token is there already (it gets that token's id) never applies
    made = [left + right for left, right in trained(counts, num_merges)]
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("room", [1, 40, None])
def test_however_few_places_are_listed_at_a_time_the_merges_are_the_same(room: int | None) -> None:
    shuffler = random.Random(7)
    words = {bytes(shuffler.choices(b"abcdefgh", k=shuffler.randint(2, 14))): i % 5 for i in range(300)}
    trainer = BpeTrainer(PretokenCounts.from_dict(words), MergeRules(), 200, room)
    trainer.run(200)
    assert trainer.merges() == reference.train_merges(words, 200)


@pytest.mark.parametrize("max_narrow", [256, 300, 456])
def test_more_symbols_than_narrow_cells_hold_are_written_in_wide_ones(max_narrow: int) -> None:
    shuffler = random.Random(10)
    words = {bytes(shuffler.choices(b"abcdefgh", k=shuffler.randint(2, 14))): i % 5 for i in range(300)}
    trainer = BpeTrainer(PretokenCounts.from_dict(words), MergeRules(), 200, max_narrow=max_narrow)
    assert trainer.run(200) == 200
    assert trainer.merges() == reference.train_merges(words, 200)


def test_a_text_of_many_bytes_begins_with_a_count_a_pair_of_bytes() -> None:
    shuffler = random.Random(8)
    words = {bytes(shuffler.choices(b"abcd ", k=40)): 1 + i % 3 for i in range(1700)}
    assert trained(words, 20) == reference.train_merges(words, 20)


def test_more_pairs_than_were_guessed_find_room() -> None:
    shuffler = random.Random(9)
    words = {shuffler.randbytes(40): 1 for _ in range(100)}
    assert trained(words, 3) == reference.train_merges(words, 3)


def test_long_tokens_find_room_for_their_bytes() -> None:
    lengths = [len(left + right) for left, right in trained({b"a" * (1 << 14): 1}, 14)]
    assert lengths == [1 << power for power in range(1, 15)]


def test_a_training_goes_on_where_it_stopped() -> None:
    trainer = BpeTrainer(PretokenCounts.from_dict(SENNRICH), MergeRules(), 6)
    assert [trainer.run(number) for number in (0, 2, 1, 6)] == [0, 2, 2, 6]
    assert trainer.merges() == SENNRICH_MERGES


def test_ids_are_bytes_then_merges_then_specials_then_reserved() -> None:
    tok = tokenizer.train_from_counts(
        SENNRICH, vocab_size=256 + 2 + 2 + 1, special_tokens=["<b>", "<a>"], num_reserved=1
    )
    assert (tok.vocab[b"!"], tok.vocab[b" "], tok.vocab[b"\xad"]) == (0, 220, 255)
    assert (tok.vocab[b"st"], tok.vocab[b"est"]) == (256, 257)
    assert dict(tok.special_tokens) == {"<b>": 258, "<a>": 259, "<|reserved_0|>": 260}
    assert tok.vocab_size == len(tok.vocab) == 261


def test_too_few_pairs_say_what_would_do() -> None:
    with pytest.raises(
        TrainingError, match=r"3 distinct bytes and 2 mergeable pairs.*lower vocab_size to 258"
    ):
        tokenizer.train_from_counts({b"abc": 1}, vocab_size=300)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"vocab_size": 255}, "use at least 256"),
        ({"vocab_size": 300, "family": "words"}, "family='words'"),
        ({"vocab_size": 300, "tie_break": "first"}, "tie_break='first'"),
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
def test_parameters_that_make_no_sense(arguments: dict, says: str) -> None:
    with pytest.raises(tokenizer.TokenizerError, match=says):
        tokenizer.train_from_counts(SENNRICH, **arguments)


def test_a_sweep_makes_what_trainings_of_their_own_make() -> None:
    options = {"special_tokens": ["<b>", "<a>"], "num_reserved": 1, "tie_break": "lowest_ids"}
    sizes = [263, 260, 259, 263]
    made = tokenizer.train_sweep_from_counts(SENNRICH, vocab_sizes=sizes, **options)
    assert made == [tokenizer.train_from_counts(SENNRICH, vocab_size=size, **options) for size in sizes]
    assert [tok.vocab_size for tok in made] == sizes


def test_a_sweep_says_which_size_is_too_large_and_needs_one() -> None:
    with pytest.raises(TrainingError, match="vocab_size=300 needs 44 merges; lower vocab_size to 258"):
        tokenizer.train_sweep_from_counts({b"abc": 1}, vocab_sizes=[257, 300])
    with pytest.raises(TrainingError, match="vocab_sizes is empty"):
        tokenizer.train_sweep_from_counts(SENNRICH, vocab_sizes=[])


def test_options_are_known_by_name() -> None:
    with pytest.raises(TypeError, match="vocab"):
        tokenizer.train_from_counts(SENNRICH, vocab_size=257, vocab=3)
    defaults = {field.name for field in dataclasses.fields(TrainingPlan)}
    assert {*tokenizer.TrainingOptions.__annotations__, "num_threads"} == defaults


def test_progress_ends_with_the_number_of_merges() -> None:
    calls: list[tuple[int, int]] = []
    tokenizer.train_from_counts(
        SENNRICH, vocab_size=256 + 6, progress=lambda made, wanted: calls.append((made, wanted))
    )
    assert calls[-1] == (6, 6)


def test_training_from_texts_cuts_special_tokens_out_and_normalizes() -> None:
    tok = tokenizer.train(
        ["ABAB<END>ABAB<END>"], vocab_size=256 + 2 + 1, special_tokens=["<END>"], normalizer="lowercase"
    )
    assert tok.merges == [(b"a", b"b"), (b"ab", b"ab")]
    assert tok.encode("ABAB<END>abab", allowed_special="all") == [257, 258, 257]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_threads_change_no_training(num_threads: int) -> None:
    texts = [f"the {number} foxes and the {number % 7} dogs " * 40 for number in range(3000)]
    tok = tokenizer.train(iter(texts), vocab_size=300, num_threads=num_threads)
    counts = count_buffers(*buffers.pack(texts), compile_pattern("o200k"))
    assert tok == tokenizer.train_from_counts(counts, vocab_size=300)


def test_counting_takes_texts_and_the_options_of_training() -> None:
    texts = ["ABAB<END>ABAB 12", "AB 12<END>"]
    options = {"special_tokens": ["<END>"], "normalizer": "lowercase", "digits": "single"}
    counts = tokenizer.count_pretokens(texts, num_threads=2, **options)
    assert counts.to_dict() == {b" ": 2, b"1": 2, b"2": 2, b"ab": 1, b"abab": 2}
    assert tokenizer.train_from_counts(counts, vocab_size=259, **options) == tokenizer.train(
        texts, vocab_size=259, **options
    )


def test_texts_may_be_bytes_or_arrow() -> None:
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
def test_what_is_no_text_is_not_trained_on(texts: object, says: str) -> None:
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
def test_counts_that_are_none(counts: object, says: str) -> None:
    with pytest.raises(TokenizerError, match=says):
        tokenizer.train_from_counts(counts, vocab_size=256)


def test_counts_may_be_of_numpy() -> None:
    tok = tokenizer.train_from_counts({b"ab": np.uint64(3), b"cd": np.int32(2)}, vocab_size=257)
    assert tok.merges == [(b"a", b"b")]


def test_no_threads_are_refused() -> None:
    with pytest.raises(tokenizer.TokenizerError, match="num_threads=0 must be at least 1"):
        tokenizer.train(["a"], vocab_size=256, num_threads=0)
