"""Normalizers: golden texts, and buffers as texts."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tokenizer import TokenizerError
from tokmill.tokenizer.components.normalizers import STEPS, normalize, normalize_buffers
from tokmill.tokenizer.core import buffers

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
