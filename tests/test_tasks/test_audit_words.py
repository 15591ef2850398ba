"""Words by Unicode's rules: by hand, and against the boundaries that the `regex` package finds."""

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.audit.measurement import words_of


def words(text: str) -> list[str]:
    data = np.frombuffer(text.encode(), np.uint8)
    starts, ends = words_of(data, np.array([0, len(data)]))
    return [data[start:end].tobytes().decode() for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop: U.S.A. 1,000.5!", ["Don't", "stop", "U.S.A", "1,000.5"]),
        ("a,b foo_bar x1y", ["a", "b", "foo_bar", "x1y"]),
        ("漢字 カタカナ ひら", ["漢", "字", "カタカナ", "ひ", "ら"]),
        ("צה\"ל ג'", ['צה"ל', "ג'"]),
        ("ไทย", ["ไ", "ท", "ย"]),
        ("हिन्दी été e\u0301te\u0301", ["हिन्दी", "été", "e\u0301te\u0301"]),
        ("😀 ... \n", []),
        ("", []),
    ],
)
def test_by_hand(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_words_do_not_cross_documents() -> None:
    data = np.frombuffer(b"abcdef", np.uint8)
    starts, ends = words_of(data, np.array([0, 3, 3, 6]))
    assert (starts.tolist(), ends.tolist()) == ([0, 3], [3, 6])


ALPHABET = "ab\u05d01 2.,:_-\n漢ひカー한ไ\u0301\u200dAßπЖ"


@given(st.text(ALPHABET, max_size=30))
def test_boundaries_are_those_of_regex(text: str) -> None:
    """Where the package keeps to the rules: it has its own for apostrophes, marks and runs of spaces."""
    unmarked = regex.sub(r"[\u0301\u200d]", "", text)
    plain = regex.sub(r"(?<= ) |(?<=[カー])_+|_+(?=[カー])", "", unmarked)
    parts = regex.split(r"(?w)\b", plain) if plain else []
    expected = [part for part in parts if regex.match(r"[\p{L}\p{N}_]", part)]
    assert words(plain) == expected
