"""Steps of normalizers with arguments: their spelling, their meaning, and that of tokenizers."""

import json
from functools import lru_cache
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, any_text, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, TokenizerError
from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE, Step, spelled, steps_of
from tokmill.tokenizer.components.normalizers import Normalizer, normalize
from tokmill.tokenizer.formats import normalizers as files

NASTY = [
    "",
    " ",
    "\u3000\x85 x\u2028\x1c ",
    "''quoted``  text\t\n",
    "▁marked ▁▁",
    "\u0301é각İΣ",
    'a+b(c),"d"\\n',
    "\x00\x1f\ufeff\u200b",
    "😀👨‍👩‍👧",
    "\U0010ffff\u0378",
]

NAMES = [
    'replace("``","\\"")',
    'replace(" ","▁")',
    'replace("a","aa")+replace("aa","b")',
    'replace_pattern("\\\\s+"," ")',
    'replace_pattern("[^\\\\p{L}]","")',
    'prepend("▁")',
    'nfc+prepend("x")+strip+lowercase',
    "strip",
    "strip_left",
    "strip_right",
    'bert_clean+strip+replace("é","\\u0301")+nfd',
    "lowercase+bert_clean",
    "cjk_spaces+bert_clean+lowercase+nfkc",
]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ('replace("``","\\"")', "``a```", '"a"`'),
        ('replace_pattern(" {2,}"," ")', "a  b   c", "a b c"),
        ('replace_pattern("(a)","\\\\1")', "a", "\\1"),
        ('prepend("▁")', "a", "▁a"),
        ('prepend("▁")', "", ""),
        ("strip", " \u3000a\x1c ", "a\x1c"),
        ("strip_left", " a ", "a "),
        ("strip_right", " a ", " a"),
        ('strip+prepend(" ")', " ", ""),
    ],
)
def test_by_hand(name: str, text: str, expected: str) -> None:
    assert normalize(name, text) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_one_spelling(name: str) -> None:
    steps = steps_of(name)
    canonical = spelled(steps)
    assert steps_of(canonical) == steps
    assert Normalizer(name) == Normalizer(canonical) == Normalizer(name.replace('","', '", "'))


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2), st.text())
def test_any_text_can_be_an_argument(texts: list[str], added: str) -> None:
    steps = (Step("replace", tuple(texts)), Step("prepend", (added,)), Step("nfc"))
    if any("\ud800" <= one <= "\udfff" for text in (*texts, added) for one in text):
        return
    assert steps_of(spelled(steps)) == steps


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ('replace("a")', r"'replace\(\"a\"\)' is not known"),
        ('prepend("a","b")', "is not known"),
        ("prepend", "'prepend' is not known"),
        ('nfc("a")', "is not known"),
        ('replace("","b")', "between all characters"),
        ('replace_pattern("(","b")', "is not a regular expression"),
        ('replace_pattern("a*","b")', "can match the empty string"),
        ('prepend("\\ud800")', "must be texts"),
        ('prepend("\\q")', "must be texts"),
        ('prepend("a"', "is not known"),
        ("+".join(["nfc"] * 17), "at most 16 steps"),
        ('prepend("' + "a" * 10_000 + '")', "at most 10000 characters"),
    ],
)
def test_what_cannot_be_used_is_refused(name: str, says: str) -> None:
    with pytest.raises(TokenizerError, match=says) as caught:
        Normalizer(name)
    assert len(str(caught.value)) < 1500


def of_tokenizers(name: str) -> tokenizers.normalizers.Normalizer:
    """The library's normalizer, read from what we write."""
    empty = tokenizers.Tokenizer(tokenizers.models.BPE()).to_str()
    content = json.loads(empty) | {"normalizer": files.write_named(Normalizer(name).name)}
    return tokenizers.Tokenizer.from_str(json.dumps(content)).normalizer


@pytest.mark.parametrize("name", NAMES)
def test_tokenizers_does_the_same(name: str) -> None:
    theirs = of_tokenizers(name)
    assert files.read_named(files.write_named(name), "file", loses_spaces=False) == Normalizer(name).name
    # Its Unicode is version 8, so texts have characters that are older.
    for text in [*NASTY, *TRAINING_TEXTS]:
        if not {"\u0378", "\U0010ffff"}.intersection(text):
            assert theirs.normalize_str(text) == normalize(name, text), text


@given(st.text(st.sampled_from(" ab`\"'▁\t\n\u3000éx"), max_size=20))
def test_tokenizers_does_the_same_to_any_text(text: str) -> None:
    for name in NAMES:
        assert of_tokenizers(name).normalize_str(text) == normalize(name, text)


@pytest.mark.shared_data
def test_tokenizers_does_the_same_to_real_text(shared_data: Path) -> None:
    name = 'nfkc+replace_pattern("\\\\s+"," ")+replace("\'\'","\\"")+strip+prepend("▁")+lowercase'
    theirs = of_tokenizers(name)
    for text in ntrex(shared_data).values():
        for line in text.splitlines()[:60]:
            assert theirs.normalize_str(line) == normalize(name, line)


def test_white_space_is_that_of_the_library() -> None:
    strip = tokenizers.normalizers.Strip()
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    assert sorted(WHITE_SPACE) == [chr(point) for point in points if not strip.normalize_str(chr(point))]


FAMILIES = {
    "byte_bpe": 300,
    "char_bpe": 90,
    "unigram": 90,
    "wordpiece": 100,
    "word_bpe": 100,
    "word_level": 40,
}
NAME = 'nfc+replace("ß","ss")+replace_pattern("[0-9]+","0")+strip+prepend("▁")'


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_takes_them(family: str, tmp_path: Path) -> None:
    options = {"family": family, "normalizer": NAME, "allow_smaller": True, "special_tokens": ["<|end|>"]}
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=FAMILIES[family], num_threads=2, **options)
    assert "▁".encode() in b"".join(tok.vocab)
    again = tokenizer.load(*tok.save(tmp_path / "own"))
    assert again.spec() == tok.spec()
    for text in [*TRAINING_TEXTS, *NASTY, "  the 1234<|end|> fox  "]:
        ids = tok.encode(text, allowed_special="all")
        assert again.encode(text, allowed_special="all") == ids
        assert list(tok.encode_iterable([*text], allowed_special="all")) == ids
        assert tok.encode_batch(["x", text], allowed_special="all")[1].tolist() == ids


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "char_bpe"])
def test_tokenizers_gives_our_ids(family: str, tmp_path: Path) -> None:
    options = {"family": family, "normalizer": NAME, "allow_smaller": True, "special_tokens": ["<|end|>"]}
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=FAMILIES[family], **options)
    tok.save(tmp_path, "huggingface")
    theirs, again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")), tokenizer.load(tmp_path)
    for text in [*TRAINING_TEXTS, "  the 1234<|end|> fox  ", "Straße<|end|>", "<|end|><|end|> "]:
        ids = tok.encode(text, allowed_special="all")
        assert (
            theirs.encode(text, add_special_tokens=False).ids
            == ids
            == again.encode(text, allowed_special="all")
        )


@lru_cache
def small() -> tokenizer.Tokenizer:
    """A tokenizer with such a normalizer."""
    return tokenizer.train(TRAINING_TEXTS, vocab_size=280, normalizer=NAME)


@given(any_text())
def test_offsets_lie_in_the_normalized_text(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    ids, spans = small().encode_with_offsets(text, as_text=True)
    assert ids == small().encode(text, as_text=True)
    assert (spans[-1][1] if spans else 0) == len(normalize(NAME, text))


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"type": "Replace", "pattern": {"Regex": r"\d"}, "content": ""}, "in another way"),
        ({"type": "ByteLevel"}, "only NFC"),
    ],
)
def test_steps_that_mean_something_else_are_refused_by_name(step: dict[str, object], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        files.read_named({"type": "Sequence", "normalizers": [step]}, "tokenizer.json", loses_spaces=False)


def test_an_expression_that_tokenizers_reads_otherwise_is_not_written() -> None:
    with pytest.raises(FormatError, match="in another way"):
        files.write_named(r'replace_pattern("\\w","")')
