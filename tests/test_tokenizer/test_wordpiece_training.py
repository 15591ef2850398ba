"""Training WordPiece: the kernels against the reference, exact scores, ties and limits."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill import tokenizer
from tokmill.tokenizer import PretokenCounts, TrainingError
from tokmill.tokenizer.merging.rules import Marks, MergeRules
from tokmill.tokenizer.merging.trainer import learn_merges
from tokmill.tokenizer.reference import wordpiece as reference

words_of_few_letters = st.dictionaries(
    st.text(st.sampled_from("abé"), min_size=1, max_size=9), st.integers(1, 3), min_size=1, max_size=12
)
words_of_any = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs", "Z", "Cc"]), min_size=1, max_size=6),
    st.integers(1, 1 << 40),
    min_size=1,
    max_size=12,
)


def counted(words: dict[str, int]) -> PretokenCounts:
    """Counts of words."""
    return PretokenCounts.from_dict({word.encode(): count for word, count in words.items()})


def learned(words: dict[str, int], number: int, score: str = "likelihood", **options: object) -> list[str]:
    """The pieces that the kernels learn."""
    by = {"by_likelihood": score == "likelihood", "marks": Marks(b"##")}
    rules = MergeRules(tie_break=None, **by, **options)  # type: ignore[arg-type]
    return [piece.decode() for piece in learn_merges(counted(words), number, rules).pieces]


@pytest.mark.parametrize("score", ["likelihood", "frequency"])
@given(
    words=st.one_of(words_of_few_letters, words_of_any), number=st.integers(1, 60), least=st.integers(1, 4)
)
@settings(max_examples=200)
def test_pieces_are_those_of_the_reference(
    score: str, words: dict[str, int], number: int, least: int
) -> None:
    expected = reference.train(words, number, by_likelihood=score == "likelihood", least=least)

    assert learned(words, number, score=score, min_frequency=least) == expected


@pytest.mark.parametrize("score", ["likelihood", "frequency"])
@pytest.mark.parametrize("seed", range(3))
def test_tables_grow_and_long_words_are_learned(score: str, seed: int) -> None:
    dice = random.Random(seed)
    words = {
        "".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randrange(1, 9))): dice.randrange(1, 9)
        for _ in range(700)
    }
    words |= {"ab" * 600 + "c": 2, "a" * 1000: 3}
    few = 60

    by_likelihood = score == "likelihood"
    assert learned(words, few, score=score) == reference.train(words, few, by_likelihood=by_likelihood)
    every = learned(words, 10**6, score=score)
    assert every[:few] == learned(words, few, score=score)
    assert {*words} - {*every} <= {"ab" * 600 + "c", "a" * 1000} or by_likelihood
    assert len(set(every)) == len(every)


def test_scores_beyond_floating_point_are_told_apart() -> None:
    """Two pairs whose scores differ in the twentieth digit."""
    large = (1 << 61) - 1
    words = {"ab": large // 4, "cd": large // 4 - 1, "ax": 1, "cx": 1}

    assert learned(words, 9) == reference.train(words, 9)


def test_the_order_of_words_does_not_matter() -> None:
    words = {f"w{number}x{number % 7}": number for number in range(1, 60)}
    shuffled = dict(random.Random(1).sample(sorted(words.items()), len(words)))

    assert learned(words, 100) == learned(shuffled, 100)


def test_limits_hold() -> None:
    words = {"aaaa": 5, "bc": 9}

    assert max(len(p.removeprefix("##")) for p in learned(words, 50, max_token_bytes=2)) == 2
    assert "bc" not in learned(words, 50, forbidden={b"bc"})
    assert learned({}, 10) == []


def test_counts_that_add_up_to_too_much_are_refused() -> None:
    with pytest.raises(TrainingError, match="add up to more than"):
        learned({"ab": (1 << 63) - 1, "cd": (1 << 63) - 1}, 10)


def test_too_little_text_names_a_size_that_works() -> None:
    with pytest.raises(TrainingError, match=r"lower vocab_size to \d+") as refused:
        tokenizer.train(["ab ab"], family="wordpiece", vocab_size=500)
    size = int(str(refused.value).partition("lower vocab_size to ")[2].partition(",")[0])

    assert tokenizer.train(["ab ab"], family="wordpiece", vocab_size=size).vocab_size == size


def test_a_sweep_gives_prefixes() -> None:
    texts = ["the cat sat on the mat with the other cat"] * 3
    small, large = tokenizer.train_sweep_from_counts(
        tokenizer.count_pretokens(texts), vocab_sizes=[20, 30], family="wordpiece"
    )

    assert list(large.vocab)[:20] == list(small.vocab)[:20]
    assert large == tokenizer.train(texts, family="wordpiece", vocab_size=30)
    assert large.special_tokens == {"[UNK]": 0}
