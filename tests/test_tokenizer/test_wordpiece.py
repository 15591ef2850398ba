"""WordPiece: encoded and trained as the slow model does, and as Hugging Face's tokenizers encodes."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from tests.test_tokenizer.conftest import corpus, listed, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import (
    PretokenCounts,
    Tokenizer,
    TrainingError,
)
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.merging.rules import Marks, MergeRules
from tokmill.tokenizer.merging.trainer import learn_merges
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import wordpiece as reference
from tokmill.tokenizer.wordpiece.model import WordPieceModel

PIECES = listed("a b ab aba é ##a ##b ##ab ##é ##aab ba ## 日 ##本 un run ##ing")
WHITE = " \t\n\r\v\f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"


def made(pieces: list[str] = PIECES, pattern: str = r"\s+|\S+", **rules: object) -> Tokenizer:
    vocabulary = Vocabulary.build({i: p.encode() for i, p in enumerate(pieces, 1)}, {"[UNK]": 0, "[SEP]": 90})
    model = WordPieceModel(vocabulary, **rules)  # type: ignore[arg-type]
    return Tokenizer(Definition.compose(model, split_pattern=pattern, decoder="wordpiece"))


def words_of(text: str) -> list[str]:
    """The words of a text, by Unicode's White_Space."""
    for space in WHITE:
        text = text.replace(space, " ")
    return [word for word in text.split(" ") if word]


def pieces_of(tok: Tokenizer, text: str) -> list[str]:
    ids = tok.encode_batch([text], as_text=True).ids
    return [tok.token_bytes(i).decode() for i in ids.tolist()]


def test_a_word_that_fits_but_for_its_end_is_located():
    """Such a word has more pieces before it turns out to be unknown than ids in the end."""
    tok = made(["a", "##a", "é"])

    ids, spans = tok.encode_with_offsets("aa " + "a" * 99 + "b \té")
    assert (ids, spans) == ([1, 2, 0, 3], [(0, 1), (1, 2), (3, 103), (105, 106)])
    assert tok.decode(ids) == "aa [UNK] é"


def test_bytes_that_are_not_utf8_are_accounted_for():
    tok = made(unknown="part")
    data = np.frombuffer(b"ab\xffab \xe3\x80 a\xc2", np.uint8)

    ids = tok.encode_buffers(data, np.array([0, len(data)]), as_text=True).ids.tolist()

    assert [tok.token_bytes(i) for i in ids] == [b"ab", b"[UNK]", b"##ab", b"[UNK]", b"a", b"[UNK]"]


@given(
    pieces=st.sets(
        st.text("ab#é日", min_size=1, max_size=5).filter(lambda piece: piece != "##"), max_size=30
    ),
    words=st.lists(st.text("ab#é日z", min_size=1, max_size=40), max_size=12),
    most=st.sampled_from([1, 3, 15, 45]),
    unknown=st.sampled_from(["word", "part"]),
    space=st.sampled_from(WHITE),
)
@settings(max_examples=300)
def test_encoding_is_the_references(pieces, words, most, unknown, space):
    tok = made(sorted(pieces), unknown=unknown, max_input_chars_per_word=most)
    text = f"{space} ".join(words)
    by_part = unknown == "part"
    expected = [p for word in words for p in reference.encode(word, pieces, by_part=by_part, max_chars=most)]
    located, spans = tok.encode_with_offsets(text, as_text=True)

    assert pieces_of(tok, text) == pieces_of(tok, text) == expected
    assert [tok.token_bytes(i).decode() for i in located] == expected
    for token, (start, end) in zip(expected, spans, strict=True):
        assert token == "[UNK]" or token in {text[start:end], f"##{text[start:end]}"}


CASED = "bert_clean+cjk_spaces"
UNCASED = f"{CASED}+strip_nonspacing+lowercase"
NASTY = [
    "abcdefghij unrunning##[]  \t\n\r\x00\x01\x1c\x1f\x7f\x85\xa0\u200b\u200d\ufeff\ufffd\u2028",
    "日本語한국어नमस्तेกำ\u0301\u0323é😀👍🏽\U000e0041\U0010ffff\ue000$+<=>^`|~«»—₹\u0378ß İΣς",
]


def library(vocabulary: Path, *, lower: bool) -> BertWordPieceTokenizer:
    return BertWordPieceTokenizer(str(vocabulary), lowercase=lower, strip_accents=lower)


def nasty(number: int) -> list[str]:
    """Texts of characters that need care, and very long words."""
    dice = random.Random(number)
    texts = ["".join(dice.choices("".join(NASTY), k=dice.randrange(1, 80))) for _ in range(number)]
    return [*texts, *(f"{'a' * k} {'é' * k} {'日' * k}" for k in (99, 100, 101, 5000))]


def assert_equal(vocabulary: Path, texts: list[str]) -> None:
    for normalizer in (UNCASED, CASED):
        tok = tokenizer.load(vocabulary, normalizer=normalizer)
        other = library(vocabulary, lower=normalizer == UNCASED)
        found = tok.encode_batch(texts, as_text=True).to_lists()
        for text, ids in zip(texts, found, strict=True):
            assert other.encode(text, add_special_tokens=False).ids == ids, text[:200]


def test_ids_are_those_of_tokenizers(tmp_path):
    pieces = listed("[UNK] [PAD] [CLS] [SEP] [MASK] un run ##n ##ning ##a a b ##b ##c é 日 ## # $ i B")
    file = tmp_path / "vocab.txt"
    file.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")

    assert_equal(file, ["unrunning runn ab日b, Éa aé", *nasty(300)])


@pytest.mark.shared_data
def test_ids_are_those_of_tokenizers_on_real_text(shared_data, tmp_path):
    file = Path(shutil.copy(shared_data / "vocabs" / "bert_vocab.txt", tmp_path / "vocab.txt"))
    texts = [line for text in ntrex(shared_data).values() for line in text.split("\n")[:50]]
    for source in sorted((shared_data / "corpora").glob("*.jsonl.zst")):
        texts += corpus(shared_data, source.name.removesuffix(".jsonl.zst"), 60_000)

    assert_equal(file, [*texts, *nasty(300)])


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
    return PretokenCounts.from_dict({word.encode(): count for word, count in words.items()})


def learned(words: dict[str, int], number: int, score: str = "likelihood", **options: object) -> list[str]:
    by = {"by_likelihood": score == "likelihood", "marks": Marks(b"##")}
    rules = MergeRules(tie_break=None, **by, **options)  # type: ignore[arg-type]
    return [piece.decode() for piece in learn_merges(counted(words), number, rules).pieces]


@pytest.mark.parametrize("score", ["likelihood", "frequency"])
@given(
    words=st.one_of(words_of_few_letters, words_of_any), number=st.integers(1, 60), least=st.integers(1, 4)
)
def test_learned_pieces_are_those_of_the_reference(score, words, number, least):
    expected = reference.train(words, number, by_likelihood=score == "likelihood", least=least)

    assert learned(words, number, score=score, min_frequency=least) == expected


@pytest.mark.parametrize("score", ["likelihood", "frequency"])
@pytest.mark.parametrize("seed", range(3))
def test_tables_grow_and_long_words_are_learned(score, seed):
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


def test_scores_beyond_floating_point_are_told_apart():
    """Two pairs whose scores differ in the twentieth digit."""
    large = (1 << 61) - 1
    words = {"ab": large // 4, "cd": large // 4 - 1, "ax": 1, "cx": 1}

    assert learned(words, 9) == reference.train(words, 9)


def test_limits_hold():
    words = {"aaaa": 5, "bc": 9}

    assert max(len(p.removeprefix("##")) for p in learned(words, 50, max_token_bytes=2)) == 2
    assert "bc" not in learned(words, 50, forbidden={b"bc"})
    assert learned({}, 10) == []


def test_counts_that_add_up_to_too_much_are_refused():
    with pytest.raises(TrainingError, match="add up to more than"):
        learned({"ab": (1 << 63) - 1, "cd": (1 << 63) - 1}, 10)
