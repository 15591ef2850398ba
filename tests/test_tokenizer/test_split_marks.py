"""Which split patterns cut vowel signs and other marks from their letters, by script."""

import random
from collections import Counter

import pytest
import regex
import unicodedata2 as unicodedata

from tokmill import tokenizer
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS
from tokmill.tokenizer.splitting.marks import (
    cut_marks,
    describe,
    firsts_of_counts,
    marks_apart,
)

TAMIL = "எல்லா மனிதர்களும் சுதந்திரமாகவே பிறக்கின்றனர் " * 20
HINDI = "सभी मनुष्य जन्म से स्वतन्त्र हैं " * 20
ACCENTS = unicodedata.normalize("NFD", "à é î õ ü ") * 50
KEEP = {"o200k", "deepseek_v3", "bert", "whitespace", "whitespace_split", "punctuation"}


def firsts(text: str, pattern: str) -> Counter[str]:
    counts = tokenizer.count_pretokens([text], split_pattern=pattern)
    return firsts_of_counts(counts.data, counts.offsets, counts.counts)


@pytest.mark.parametrize("pattern", [*SPLIT_PATTERNS, *SPLIT_CHAINS])
def test_patterns_whose_words_are_letters_alone_cut_marks(pattern):
    found = cut_marks(firsts(TAMIL + HINDI + ACCENTS, pattern))

    cut = {"unicode_scripts": {"Combining"}}.get(pattern, {"Combining", "Devanagari", "Tamil"})
    assert set(found) == (set() if pattern in KEEP else cut)
    assert all(0.1 < share < 0.9 for share in found.values())


@pytest.mark.shared_data
@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "o200k"])
def test_four_languages_of_ntrex_have_their_marks_cut_off(shared_data, pattern):
    texts = {file.stem: file.read_text("utf-8") for file in (shared_data / "ntrex").glob("*.txt")}
    found = {language: set(cut_marks(firsts(text, pattern))) for language, text in texts.items()}

    cut = {"ben": {"Bengali"}, "hin": {"Devanagari"}, "tam": {"Tamil"}, "tha": {"Thai"}}
    assert {language: scripts for language, scripts in found.items() if scripts} == (
        {} if pattern in KEEP else cut
    )


@pytest.mark.parametrize("text", ["", "plain text, no marks", "❤️ ✔️ " * 100, "किताब", "\u0301" * 3])
def test_nothing_is_said_where_nothing_or_little_is_cut(text):
    assert describe("gpt2", firsts(text, "gpt2")) is None


def test_the_sentence_names_pattern_script_and_cure():
    said = describe("gpt2", firsts(TAMIL, "gpt2"))

    assert said is not None
    for fact in ("split_pattern='gpt2'", "Tamil", "%", "'o200k'"):
        assert fact in said


@pytest.mark.parametrize("seed", range(5))
def test_counts_begin_with_what_their_texts_begin_with(seed):
    random_ = random.Random(seed)
    alphabet = [" ", "a", "Z", "\x7f", "\x80", "߿", "ࠀ", "\uffff", "\U00010000", "\U0010ffff", "்", "́"]
    text = "".join(random_.choices(alphabet, k=400))
    counts = tokenizer.count_pretokens([text], split_pattern="gpt2")

    found = firsts_of_counts(counts.data, counts.offsets, counts.counts)

    words = [word.removeprefix(" ") for word in regex.findall(SPLIT_PATTERNS["gpt2"], text)]
    assert found == Counter(word[0] for word in words if word)


def test_bytes_that_are_no_character_are_passed_over():
    counts = tokenizer.PretokenCounts.from_dict(
        {b"\xe0": 5, b" \xf0\x9f": 3, b"\xff\xfe": 2, b"\x80": 1, b"a": 4, b" ": 9}
    )

    assert firsts_of_counts(counts.data, counts.offsets, counts.counts) == Counter({"a": 4})


def tokens_of(text: str, **options: object) -> list[tuple[str, int]]:
    """The tokens of a text, and how often each occurs, by a tokenizer that was trained on it."""
    tok = tokenizer.train([text], **options)
    counts = Counter(tok.encode(text))
    return [(tok.token_bytes(token).decode("utf-8", "replace"), number) for token, number in counts.items()]


@pytest.mark.parametrize(("pattern", "apart"), [("gpt2", {"Tamil"}), ("llama3", {"Tamil"}), ("o200k", set())])
def test_tokens_show_marks_that_were_cut_off(pattern, apart):
    tokens = tokens_of(TAMIL, vocab_size=288, split_pattern=pattern)
    assert set(marks_apart(tokens)) == apart


def test_single_characters_and_accents_beside_others_are_no_cut():
    assert marks_apart(tokens_of(TAMIL, vocab_size=60, family="character_level")) == {}
    assert marks_apart([("மர", 50), ("ம்", 50), ("ி", 50)]) == {}  # one token holds both
    assert marks_apart([("மர", 50), ("ம", 50), ("ி", 100)]) == {"Tamil": 0.5}
    assert marks_apart([("மர", 50), ("ம", 50), ("ி", 5)]) == {}  # now and then
