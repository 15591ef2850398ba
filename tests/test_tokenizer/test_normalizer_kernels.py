"""Normalizers by kernel: as unicodedata and the slow steps have them, for every character and mark."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import unicodedata2 as unicodedata
from hypothesis import example, given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import BERT, any_text, corpus, ntrex
from tokmill.tokenizer.components.character_maps import CharacterMap
from tokmill.tokenizer.components.forms import _seconds
from tokmill.tokenizer.components.normalizers import normalize, normalize_buffers
from tokmill.tokenizer.core.buffers import pack, pack_bytes, unpack

FORMS = ["nfc", "nfd", "nfkc", "nfkd"]
CHAINS = [
    BERT,
    "lowercase",
    "strip_nonspacing",
    "nfd+strip_accents+lowercase",
    "nfc+nfkd",
    'replace(" ","▁")+lowercase+nfc',
    'replace("a","||y")+lowercase',
]
NAMES = [*FORMS, *CHAINS]
# Letters and marks that join, move, block each other, or are replaced
HARD = "aeéệがかﾞ각Ａﬁ½¨…㍿ǆ \n\u3099\u0301\u0323\u0316\u0327\u0344\u09c7\u09be\u0bc6\u0bbe\u0bcd\u093c"
HARD += "\u0915\u0958\u1100\u1161\u11a8\u212b\u2126\u0340\u1e9b\ufdfa\U0001d15e\U0001d165\u0f71\u0f72\u0f80"
HARD += "\u05d0\u05b4\u0653\u0627"
# Marks that are not Mn and change places: 302E and 302F (224), 1D165 (216), 1D16D (226), 16FF0 (6)
MARKS = "\u302e\u302f\U0001d165\U0001d16d\U00016ff0\u0301\u0323\u1112\u1161\u11ab각aÉ가"
texts = st.one_of(
    *(st.text(st.sampled_from(each), max_size=14) for each in (HARD, MARKS, "".join(map(chr, range(128))))),
    any_text(),
    st.text(max_size=20),
)
ASSIGNED = [
    chr(point) for point in range(0x110000) if unicodedata.category(chr(point)) not in {"Cn", "Co", "Cs"}
]


def slowly(name: str, text: str) -> str:
    """The text by unicodedata, where the name is one of its forms, or else by the steps of the name."""
    if name in FORMS:
        return unicodedata.normalize(name.upper(), text)
    made: str = normalize(name, text)
    return made


def check(name: str, given: list[str], keep: list[bool] | None = None) -> None:
    kept = None if keep is None else np.array(keep, np.bool_)
    found = [text.decode() for text in unpack(*normalize_buffers(name, *pack(given), kept))]
    whole = keep or [False] * len(given)
    assert found == [text if same else slowly(name, text) for text, same in zip(given, whole, strict=True)]


@pytest.mark.parametrize("name", NAMES)
@given(st.lists(texts, max_size=6), st.data())
@example(["e\u0323\u0301", "é\u0323", "é\u0316", "", "a\u0301\u0327\u0323", "a\u302f\U0001d165b"], None)
def test_texts_are_normalized_as_slowly(name, given, data):
    given = [text.encode("utf-8", "replace").decode() for text in given]
    flags = st.lists(st.booleans(), min_size=len(given), max_size=len(given))
    check(name, given, [False] * len(given) if data is None else data.draw(flags))


@pytest.mark.parametrize("name", NAMES)
def test_every_character_between_letters_and_before_marks(name):
    shown = "a{0}B{0}\u0301\u0323{0}".format
    check(name, ["".join(map(shown, ASSIGNED[i : i + 501])) for i in range(0, len(ASSIGNED), 501)])


@pytest.mark.parametrize("name", ["nfc", "nfkc"])
def test_every_pair_that_joins_does(name):
    pairs = list[str]()
    for character in ASSIGNED:
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and parts[0][0] != "<":
            pairs.append("".join(chr(int(part, 16)) for part in parts))
            assert pairs[-1][1] in _seconds()
    check(name, ["x".join(pairs), "\u0316".join(pairs), "".join(pairs)])


@pytest.mark.parametrize("name", ["nfkc", "lowercase"])
@given(st.lists(st.binary(max_size=12), max_size=5))
def test_bytes_that_are_no_text_stay(name, documents):
    read = [document.decode("utf-8", "surrogateescape") for document in documents]
    expected = [slowly(name, text).encode("utf-8", "surrogateescape") for text in read]
    assert unpack(*normalize_buffers(name, *pack_bytes(documents))) == expected


@pytest.mark.parametrize("name", [*NAMES, f'replace("x","{"long " * 20}")'])
def test_text_that_grows_or_shrinks_finds_room(name):
    for character in ("각", "각", "\u302e", "x", "İ", "ﷺ", "e\u0301", "x" * 9000 + "e\u0301"):
        check(name, ["a", character * (9000 // len(character) + 1), "é"])
    line = unicodedata.normalize("NFD", "Tiếng Việt 한국어 が é")
    many = [line[: 3 + i % 17] if i % 5 else "" for i in range(3000)] + ["Größe"] * 3000 + [line] * 9
    check(name, many, [i % 7 == 0 for i in range(len(many))])


@pytest.mark.shared_data
@pytest.mark.parametrize("name", FORMS)
def test_real_text(shared_data, name):
    given = [text[:8_000] for text in ntrex(shared_data).values()]
    given += [unicodedata.normalize("NFD", text[:2_000]) for text in given]
    check(name, given + corpus(shared_data, "japanese_literature", 50_000))


def test_threads_share_a_table():
    texts = ["".join(map(chr, range(first, first + 700))) for first in range(0x80, 0xD000, 699)]
    expected = [normalize(BERT, text).encode() for text in texts]
    made = CharacterMap(partial(normalize, BERT), lambda _: False)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: unpack(*made.buffers(*pack(texts), None)), range(8)):
            assert found == expected
