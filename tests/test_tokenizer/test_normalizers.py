"""Normalizers: golden texts, and buffers as texts."""

import itertools

import numpy as np
import pytest
import unicodedata2 as unicodedata
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tokenizer import TokenizerError
from tokmill.tokenizer.components.character_maps import CharacterMap
from tokmill.tokenizer.components.normalizers import STEPS, normalize, normalize_buffers
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import pack_bytes

TEXT = "ＡÉ e\u0301 ﬁ ΣΊΣ İ"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, TEXT),
        ("nfc", "ＡÉ é ﬁ ΣΊΣ İ"),
        ("nfkc", "AÉ é fi ΣΊΣ İ"),
        ("lowercase", "ａé e\u0301 ﬁ σίσ i\u0307"),
        ("nfd+strip_accents", "ＡE e ﬁ ΣΙΣ I"),
        ("nfkc+lowercase", "aé é fi σίσ i\u0307"),
    ],
)
def test_texts_by_hand(name: str | None, expected: str) -> None:
    assert normalize(name, TEXT) == expected


@pytest.mark.parametrize("step", ["nfc", "nfd", "nfkc", "nfkd"])
@given(text=st.text())
def test_forms_are_those_of_unicodedata(step: str, text: str) -> None:
    assert normalize(step, text) == unicodedata.normalize(step.upper(), text)


@given(st.sampled_from([None, *STEPS, "nfkd+strip_accents+lowercase"]), st.lists(st.text(), max_size=5))
def test_buffers_are_their_texts(name: str | None, texts: list[str]) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    data, offsets = normalize_buffers(name, *buffers.pack(["not this one", *texts]))
    assert buffers.unpack(data, offsets)[1:] == [normalize(name, text).encode() for text in texts]
    later = normalize_buffers(name, *(buffers.pack(["É", *texts])[0], buffers.pack(["É", *texts])[1][1:]))
    assert buffers.unpack(*later) == [normalize(name, text).encode() for text in texts]


def test_what_is_kept_and_what_is_no_text_stays() -> None:
    data, offsets = buffers.pack_bytes([b"A", b"\xffB", b"C"])
    keep = np.array([True, False, False])
    assert buffers.unpack(*normalize_buffers("lowercase", data, offsets, keep)) == [b"A", b"\xffb", b"c"]


@pytest.mark.parametrize("name", ["", "nfx", "nfc+", "NFC"])
def test_unknown_steps(name: str) -> None:
    with pytest.raises(TokenizerError, match="steps from nfc, nfd"):
        normalize(name, "a")


@pytest.mark.parametrize("old", ["a", "|", "z", "é"])
@pytest.mark.parametrize("new", ["", "|", "x|", "||y"])
def test_characters_are_changed_by_the_page_as_they_are_alone(old: str, new: str) -> None:
    def change(text: str) -> str:
        return text.replace(old, new).upper()

    characters = [chr(point) for point in range(0x1000)]
    data, offsets = pack_bytes([character.encode() for character in characters])
    out, bounds = CharacterMap(change, lambda text: "\u0301" in text).buffers(data, offsets, None)

    found = [out[i:j].tobytes().decode() for i, j in itertools.pairwise(bounds)]
    assert found == [change(character) for character in characters]
