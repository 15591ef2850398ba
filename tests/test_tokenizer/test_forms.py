"""Unicode's forms by kernel: as `unicodedata` has them, for every character, pair and order of marks."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import unicodedata2 as unicodedata
from hypothesis import example, given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import any_text, corpus, ntrex
from tokmill.tokenizer.components.forms import Form, FormMap, _seconds
from tokmill.tokenizer.components.normalizers import normalize_buffers
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
def test_buffers_are_their_texts(form: Form, given: list[str], data: st.DataObject | None) -> None:
    given = [text.encode("utf-8", "replace").decode() for text in given]
    flags = st.lists(st.booleans(), min_size=len(given), max_size=len(given))
    keep = [False] * len(given) if data is None else data.draw(flags)
    expected = [
        text if kept else unicodedata.normalize(form, text) for text, kept in zip(given, keep, strict=True)
    ]
    assert formed(form, given, keep) == expected


@pytest.mark.parametrize("form", FORMS)
def test_every_character_between_letters_and_before_marks(form: Form) -> None:
    points = [*range(0x80, 0x3400), *range(0xA000, 0xD800, 7), *range(0xF900, 0x10000)]
    points += [*range(0x10000, 0x12000), *range(0x1D100, 0x1D200), *range(0x2F800, 0x2FA20)]
    characters = [one for one in map(chr, points) if unicodedata.category(one) not in {"Cn", "Cs"}]
    given = [
        "".join(f"a{one}b{one}\u0301\u0323{one}" for one in characters[i : i + 501])
        for i in range(0, len(characters), 501)
    ]
    assert formed(form, given) == [unicodedata.normalize(form, text) for text in given]


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_every_pair_that_joins_does(form: Form) -> None:
    pairs = list[str]()
    for point in range(0xC0, 0x110000):
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and parts[0][0] != "<":
            pairs.append("".join(chr(int(part, 16)) for part in parts))
            assert pairs[-1][1] in _seconds()
    given = ["x".join(pairs), "\u0316".join(pairs), "".join(pairs)]
    assert formed(form, given) == [unicodedata.normalize(form, text) for text in given]


@pytest.mark.parametrize("form", FORMS)
def test_all_short_orders_of_marks(form: Form) -> None:
    marks = "\u0301\u0323\u0316\u093c\u0bbe\u3099\u0345"
    given = ["".join(one) for one in product("é가कஒか", marks, marks, marks)]
    assert formed(form, given) == [unicodedata.normalize(form, text) for text in given]


def test_a_buffer_in_the_form_is_the_same_buffer() -> None:
    data, offsets = pack(["Größe", "தமிழ் மொழி", "日本語", "한국어", ""])
    found, bounds = normalize_buffers("nfc", data, offsets)
    assert found is data
    assert bounds is offsets


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_bytes_that_are_no_text_stay(documents: list[bytes]) -> None:
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
def test_text_that_grows_or_shrinks_finds_room(text: str) -> None:
    for form in FORMS:
        assert formed(form, ["a", text, "é"])[1] == unicodedata.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_many_short_texts_that_are_decomposed(form: Form) -> None:
    line = unicodedata.normalize("NFD", "Tiếng Việt 한국어 が é")
    given = [line[: 3 + i % 17] if i % 5 else "" for i in range(3000)] + ["Größe"] * 3000 + [line] * 9
    keep = [i % 7 == 0 for i in range(len(given))]
    expected = [
        text if kept else unicodedata.normalize(form, text) for text, kept in zip(given, keep, strict=True)
    ]
    assert formed(form, given, keep) == expected


def test_more_pairs_than_can_be_remembered() -> None:
    text = "".join(f"{chr(point)}\u0301" for point in range(0x4E00, 0x4E00 + 9000))
    assert formed("NFC", [text + "e\u0301"]) == [unicodedata.normalize("NFC", text + "e\u0301")]


def test_threads_share_the_tables() -> None:
    given = ["".join(map(chr, range(first, first + 500))) + "e\u0301" for first in range(0xC0, 0xD000, 491)]
    expected = [unicodedata.normalize("NFKC", text).encode() for text in given]
    made = FormMap("NFKC")
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: unpack(*made.buffers(*pack(given), None)), range(8)):
            assert found == expected


@pytest.mark.shared_data
@pytest.mark.parametrize("form", FORMS)
def test_real_text(shared_data: Path, form: Form) -> None:
    given = [text[:40_000] for text in ntrex(shared_data).values()]
    given += [unicodedata.normalize("NFD", text[:5_000]) for text in given]
    given += corpus(shared_data, "japanese_literature", 200_000)
    assert formed(form, given) == [unicodedata.normalize(form, text) for text in given]


def test_the_kernel_runs_as_plain_python() -> None:
    code = (
        "from tokmill.tokenizer.components.normalizers import normalize_buffers\n"
        "from tokmill.tokenizer.core.buffers import pack\n"
        "texts = ['Größe Ａe\\u0301', '', '\\u0bc6\\u0bbe a\\u0323\\u0301']\n"
        "data, offsets = normalize_buffers('nfkc', *pack(texts))\n"
        "print(data.tobytes().hex(), offsets.tolist())"
    )
    said = [
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": flag})
        for flag in "01"
    ]
    assert said[0] == said[1]
