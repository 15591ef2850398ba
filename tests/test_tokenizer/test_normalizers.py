"""Normalizers: their names, their steps by hand, and those of Hugging Face's tokenizers."""

import json
from functools import cache, lru_cache

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer

from tests.test_tokenizer.conftest import TRAINING_TEXTS, any_text, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, TokenizerError
from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE, Step, spelled, steps_of
from tokmill.tokenizer.components.normalizers import Normalizer, normalize
from tokmill.tokenizer.formats import normalizers as files

TEXT = "ＡÉ e\u0301 ﬁ ΣΊΣ İ"
NASTY = [
    "",
    " ",
    "\u3000\x85 x\u2028\x1c ",
    "''quoted``  text\t\n",
    "▁marked ▁▁",
    "\u0301é각İΣ",
    'a+b(c),"d"\\n',
]
NASTY += ["\x00\x1f\ufeff\u200b", "😀👨‍👩‍👧"]
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
        ("nfkc", "ﬁ", "fi"),
        ("lowercase", "ΣΊΣ", "σίσ"),
        ("nfd+strip_accents", "é", "e"),
        ("bert_clean", "\t", " "),
        ("nmt", "a\tb", "a b"),
        ("cjk_spaces", "漢字", " 漢  字 "),
        ("strip_nonspacing", "é", "e"),
        (None, TEXT, TEXT),
        ("nfc", TEXT, "ＡÉ é ﬁ ΣΊΣ İ"),
        ("nfkc", TEXT, "AÉ é fi ΣΊΣ İ"),
        ("lowercase", TEXT, "ａé e\u0301 ﬁ σίσ i\u0307"),
        ("nfd+strip_accents", TEXT, "ＡE e ﬁ ΣΙΣ I"),
        ("nfkc+lowercase", TEXT, "aé é fi σίσ i\u0307"),
    ],
)
def test_by_hand(name, text, expected):
    assert normalize(name, text) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_one_spelling(name):
    steps = steps_of(name)
    canonical = spelled(steps)
    assert steps_of(canonical) == steps
    assert Normalizer(name) == Normalizer(canonical) == Normalizer(name.replace('","', '", "'))


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2), st.text())
def test_any_text_can_be_an_argument(texts, added):
    steps = (Step("replace", tuple(texts)), Step("prepend", (added,)), Step("nfc"))
    if any("\ud800" <= one <= "\udfff" for text in (*texts, added) for one in text):
        return
    assert steps_of(spelled(steps)) == steps


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "steps from nfc, nfd") for name in ("nfx", "nfc+", "NFC")),
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
def test_what_cannot_be_used_is_refused(name, says):
    with pytest.raises(TokenizerError, match=says) as caught:
        Normalizer(name)
    assert len(str(caught.value)) < 1500


@cache
def of_tokenizers(name: str) -> tokenizers.normalizers.Normalizer:
    """The library's normalizer, read from what we write."""
    empty = tokenizers.Tokenizer(tokenizers.models.BPE()).to_str()
    content = json.loads(empty) | {"normalizer": files.write(Normalizer(name))}
    return tokenizers.Tokenizer.from_str(json.dumps(content)).normalizer


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(st.sampled_from(" ab`\"'▁\t\n\u3000éx"), max_size=20))
def test_tokenizers_does_the_same(name, text):
    theirs = of_tokenizers(name)
    for each in (text, *NASTY, *TRAINING_TEXTS[:3]):
        assert theirs.normalize_str(each) == normalize(name, each)
    read = files.read(files.write(Normalizer(name)), "file", loses_spaces=False)
    assert files.normalizer_of(read) == Normalizer(name)


@pytest.mark.shared_data
def test_tokenizers_does_the_same_to_real_text(shared_data):
    name = 'nfkc+replace_pattern("\\\\s+"," ")+replace("\'\'","\\"")+strip+prepend("▁")+lowercase'
    theirs = of_tokenizers(name)
    for text in ntrex(shared_data).values():
        for line in text.splitlines()[:60]:
            assert theirs.normalize_str(line) == normalize(name, line)


def test_white_space_is_that_of_the_library():
    strip = tokenizers.normalizers.Strip()
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    assert sorted(WHITE_SPACE) == [chr(point) for point in points if not strip.normalize_str(chr(point))]


NAME = 'nfc+replace("ß","ss")+replace_pattern("[0-9]+","0")+strip+prepend("▁")'


@lru_cache
def small() -> tokenizer.Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=280, normalizer=NAME)


@given(any_text())
def test_offsets_lie_in_the_normalized_text(text):
    text = text.encode("utf-8", "replace").decode()
    ids, spans = small().encode_with_offsets(text, as_text=True)
    assert ids == small().encode(text, as_text=True)
    assert (spans[-1][1] if spans else 0) == len(normalize(NAME, text))


def test_an_expression_that_tokenizers_reads_otherwise_is_not_written():
    with pytest.raises(FormatError, match="in another way"):
        files.write(Normalizer(r'replace_pattern("\\w","")'))


STEPS = ("bert_clean", "cjk_spaces", "strip_nonspacing", "lowercase")


def theirs(steps: set[str]) -> BertNormalizer:
    """The library's normalizer with some of its steps."""
    clean, cjk, strip, lower = (step in steps for step in STEPS)
    return BertNormalizer(clean_text=clean, handle_chinese_chars=cjk, strip_accents=strip, lowercase=lower)


@pytest.mark.parametrize("number", range(1, 16))
def test_every_choice_of_steps_does_what_the_library_does(number):
    steps = [step for i, step in enumerate(STEPS) if number >> i & 1]
    points = [
        *range(0x3100),
        *range(0x4DB0, 0x4E10),
        *range(0xF8F0, 0xFB10),
        *range(0xFE00, 0x10000),
        0x20000,
        0x1F600,
    ]
    text = "".join(f"a{chr(point)}B" for point in points if not changed_since_8(point))

    assert normalize("+".join(steps), text) == theirs(set(steps)).normalize_str(text)


def changed_since_8(point: int) -> bool:
    """Whether the library's older tables have the character in another class, or do not have it."""
    character = chr(point)
    alone = theirs(set(STEPS)).normalize_str(character)
    return 0xD800 <= point < 0xE000 or alone != normalize("+".join(STEPS), character)
