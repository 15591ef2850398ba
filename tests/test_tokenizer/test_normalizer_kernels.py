"""Normalizers by kernel: as unicodedata and the slow steps have them, for every character and mark."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import unicodedata2 as unicodedata
from hypothesis import example, given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import BERT, any_text, corpus, ntrex
from tokmill.tokenizer.components.character_maps import CharacterMap
from tokmill.tokenizer.components.forms import Form, _seconds
from tokmill.tokenizer.components.normalizers import normalize, normalize_buffers
from tokmill.tokenizer.core.buffers import pack, pack_bytes, unpack

FORMS: list[Form] = ["NFC", "NFD", "NFKC", "NFKD"]
# Letters and marks that join, move, block each other, or are replaced
HARD = "aeéệがかﾞ각Ａﬁ½¨…㍿ǆ \n\u3099\u0301\u0323\u0316\u0327\u0344\u09c7\u09be\u0bc6\u0bbe\u0bcd\u093c"
HARD += "\u0915\u0958\u1100\u1161\u11a8\u212b\u2126\u0340\u1e9b\ufdfa\U0001d15e\U0001d165\u0f71\u0f72\u0f80"
HARD += "\u05d0\u05b4\u0653\u0627"
texts = st.one_of(st.text(st.sampled_from(HARD), max_size=14), any_text(), st.text(max_size=20))


def formed(form: Form, given: list[str], keep: list[bool] | None = None) -> list[str]:
    kept = None if keep is None else np.array(keep, np.bool_)
    found = unpack(*normalize_buffers(form.lower(), *pack(given), kept))
    return [text.decode() for text in found]


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(texts, max_size=5), st.data())
@example(["e\u0323\u0301", "é\u0323", "é\u0316", "", "a\u0301\u0327\u0323"], None)
def test_forms_are_those_of_unicodedata(form, given, data):
    given = [text.encode("utf-8", "replace").decode() for text in given]
    flags = st.lists(st.booleans(), min_size=len(given), max_size=len(given))
    keep = [False] * len(given) if data is None else data.draw(flags)
    expected = [
        text if kept else unicodedata.normalize(form, text) for text, kept in zip(given, keep, strict=True)
    ]
    assert formed(form, given, keep) == expected


@pytest.mark.parametrize("form", FORMS)
def test_every_character_between_letters_and_before_marks(form):
    points = [*range(0x80, 0x3400), *range(0xA000, 0xD800, 7), *range(0xF900, 0x10000)]
    points += [*range(0x10000, 0x12000), *range(0x1D100, 0x1D200), *range(0x2F800, 0x2FA20)]
    characters = [one for one in map(chr, points) if unicodedata.category(one) not in {"Cn", "Cs"}]
    given = [
        "".join(f"a{one}b{one}\u0301\u0323{one}" for one in characters[i : i + 501])
        for i in range(0, len(characters), 501)
    ]
    assert formed(form, given) == [unicodedata.normalize(form, text) for text in given]


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_every_pair_that_joins_does(form):
    pairs = list[str]()
    for point in range(0xC0, 0x110000):
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and parts[0][0] != "<":
            pairs.append("".join(chr(int(part, 16)) for part in parts))
            assert pairs[-1][1] in _seconds()
    given = ["x".join(pairs), "\u0316".join(pairs), "".join(pairs)]
    assert formed(form, given) == [unicodedata.normalize(form, text) for text in given]


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_bytes_that_are_no_text_stay_in_a_form(documents):
    expected = [
        unicodedata.normalize("NFKC", document.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
        for document in documents
    ]
    assert unpack(*normalize_buffers("nfkc", *pack_bytes(documents))) == expected


@pytest.mark.parametrize(
    "text", ["각" * 9000, "ﷺ" * 3000, "e\u0301" * 5000, "x" * 5000 + "e\u0301", "\u0301" * 4000]
)
def test_text_that_grows_or_shrinks_finds_room(text):
    for form in FORMS:
        assert formed(form, ["a", text, "é"])[1] == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_many_short_texts_that_are_decomposed(form):
    line = unicodedata.normalize("NFD", "Tiếng Việt 한국어 が é")
    given = [line[: 3 + i % 17] if i % 5 else "" for i in range(3000)] + ["Größe"] * 3000 + [line] * 9
    keep = [i % 7 == 0 for i in range(len(given))]
    expected = [
        text if kept else unicodedata.normalize(form, text) for text, kept in zip(given, keep, strict=True)
    ]
    assert formed(form, given, keep) == expected


@pytest.mark.shared_data
@pytest.mark.parametrize("form", FORMS)
def test_real_text(shared_data, form):
    given = [text[:8_000] for text in ntrex(shared_data).values()]
    given += [unicodedata.normalize("NFD", text[:2_000]) for text in given]
    given += corpus(shared_data, "japanese_literature", 50_000)
    assert formed(form, given) == [unicodedata.normalize(form, text) for text in given]


ASCII = "".join(map(chr, range(128)))
CHAINS = [
    BERT,
    "lowercase",
    "strip_nonspacing",
    "nfd+strip_accents+lowercase",
    'replace(" ","▁")+lowercase+nfc',
    'replace("a","||y")+lowercase',
]
# Marks that are not Mn and change places: 302E and 302F (224), 1D165 (216), 1D16D (226), 16FF0 (6)
MARKS = "\u302e\u302f\U0001d165\U0001d16d\U00016ff0\u0301\u0323\u1112\u1161\u11ab각"


@pytest.mark.parametrize("name", CHAINS)
def test_every_character_becomes_what_the_steps_make_of_it(name):
    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    assigned = [one for one in characters if unicodedata.category(one) not in {"Cn", "Co"}]
    texts = ["".join(f"a{one}B" for one in assigned[i : i + 997]) for i in range(0, len(assigned), 997)]
    assert unpack(*normalize_buffers(name, *pack(texts))) == [
        normalize(name, text).encode() for text in texts
    ]


@pytest.mark.parametrize("name", CHAINS)
@given(
    texts=st.lists(
        st.one_of(any_text(), st.text(ASCII, max_size=30), st.text(MARKS + "aÉ가", max_size=12)), max_size=6
    ),
    data=st.data(),
)
def test_buffers_are_their_texts(name, texts, data):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), np.bool_)
    found = unpack(*normalize_buffers(name, *pack(texts), keep))
    expected = [text if kept else normalize(name, text) for text, kept in zip(texts, keep, strict=True)]
    assert found == [text.encode() for text in expected]


def test_marks_that_change_places_are_put_in_order():
    text = "a\u302f\U0001d165b"
    (found,) = unpack(*normalize_buffers("strip_nonspacing", *pack([text])))
    assert found.decode() == "a\U0001d165\u302fb"


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_bytes_that_are_no_text_stay(documents):
    expected = [
        normalize("lowercase", document.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        for document in documents
    ]
    assert unpack(*normalize_buffers("lowercase", *pack_bytes(documents))) == expected


@pytest.mark.parametrize("character", ["各", "각", "\u302e", "x", "İ"])
def test_changed_text_that_grows_finds_room(character):
    text = character * 10_000
    assert unpack(*normalize_buffers(BERT, *pack(["a", text, "b"])))[1] == normalize(BERT, text).encode()


def test_texts_too_long_for_the_table_are_put_in_by_the_steps():
    name = f'replace("x","{"long " * 20}")'
    found = unpack(*normalize_buffers(name, *pack(["axb", "", "xx"])))
    assert found == [normalize(name, text).encode() for text in ("axb", "", "xx")]


def test_threads_share_a_table():
    texts = ["".join(map(chr, range(first, first + 700))) for first in range(0x80, 0xD000, 699)]
    expected = [normalize(BERT, text).encode() for text in texts]
    made = CharacterMap(lambda text: normalize(BERT, text), lambda _: False)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: unpack(*made.buffers(*pack(texts), None)), range(8)):
            assert found == expected
