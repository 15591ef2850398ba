"""Steps that change characters alone, run by the kernel: as the slow steps do it, whatever the text."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import unicodedata2 as unicodedata
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import any_text
from tokmill.tokenizer.components.character_maps import CharacterMap
from tokmill.tokenizer.components.normalizers import normalize, normalize_buffers
from tokmill.tokenizer.core.buffers import pack, pack_bytes, unpack

BERT = "bert_clean+cjk_spaces+strip_nonspacing+lowercase"
CHAINS = [
    BERT,
    "lowercase",
    "strip_nonspacing",
    "nfd+strip_accents+lowercase",
    'replace(" ","▁")+lowercase+nfc',
]
# Marks that are not Mn and change places: 302E and 302F (224), 1D165 (216), 1D16D (226), 16FF0 (6)
MARKS = "\u302e\u302f\U0001d165\U0001d16d\U00016ff0\u0301\u0323\u1112\u1161\u11ab각"


@pytest.mark.parametrize("name", CHAINS)
def test_every_character_becomes_what_the_steps_make_of_it(name: str) -> None:
    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    assigned = [one for one in characters if unicodedata.category(one) not in {"Cn", "Co"}]
    texts = ["".join(f"a{one}B" for one in assigned[i : i + 997]) for i in range(0, len(assigned), 997)]
    assert unpack(*normalize_buffers(name, *pack(texts))) == [
        normalize(name, text).encode() for text in texts
    ]


@pytest.mark.parametrize("name", CHAINS)
@given(
    texts=st.lists(st.one_of(any_text(), st.text(MARKS + "aÉ가", max_size=12)), max_size=6), data=st.data()
)
def test_buffers_are_their_texts(name: str, texts: list[str], data: st.DataObject) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), np.bool_)
    found = unpack(*normalize_buffers(name, *pack(texts), keep))
    expected = [text if kept else normalize(name, text) for text, kept in zip(texts, keep, strict=True)]
    assert found == [text.encode() for text in expected]


def test_marks_that_change_places_are_put_in_order() -> None:
    text = "a\u302f\U0001d165b"
    (found,) = unpack(*normalize_buffers("strip_nonspacing", *pack([text])))
    assert found.decode() == "a\U0001d165\u302fb"


@given(st.lists(st.binary(max_size=12), max_size=5))
def test_bytes_that_are_no_text_stay(documents: list[bytes]) -> None:
    expected = [
        normalize("lowercase", document.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        for document in documents
    ]
    assert unpack(*normalize_buffers("lowercase", *pack_bytes(documents))) == expected


@pytest.mark.parametrize("character", ["各", "각", "\u302e", "x", "İ"])
def test_text_that_grows_finds_room(character: str) -> None:
    text = character * 10_000
    assert unpack(*normalize_buffers(BERT, *pack(["a", text, "b"])))[1] == normalize(BERT, text).encode()


def test_texts_too_long_for_the_table_are_put_in_by_the_steps() -> None:
    name = f'replace("x","{"long " * 20}")'
    found = unpack(*normalize_buffers(name, *pack(["axb", "", "xx"])))
    assert found == [normalize(name, text).encode() for text in ("axb", "", "xx")]


def test_threads_share_a_table() -> None:
    texts = ["".join(map(chr, range(first, first + 700))) for first in range(0x80, 0xD000, 699)]
    expected = [normalize(BERT, text).encode() for text in texts]
    made = CharacterMap(lambda text: normalize(BERT, text), lambda _: False)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: unpack(*made.buffers(*pack(texts), None)), range(8)):
            assert found == expected


def test_the_kernel_runs_as_plain_python() -> None:
    code = (
        "from tokmill.tokenizer.components.normalizers import normalize_buffers\n"
        "from tokmill.tokenizer.core.buffers import pack\n"
        f"data, offsets = normalize_buffers({BERT!r}, *pack(['Größe 漢字', '', 'İ \\u302f\\U0001d165']))\n"
        "print(data.tobytes().hex(), offsets.tolist())"
    )
    said = [
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": flag})
        for flag in "01"
    ]
    assert said[0] == said[1]
