"""BERT's normalizer, against that of tokenizers, whose Unicode tables are those of Unicode 8."""

import numpy as np
import pytest
import unicodedata2 as unicodedata
from tokenizers.normalizers import BertNormalizer

from tokmill.tokenizer.components.normalizers import final_boundary, normalize, normalize_buffers
from tokmill.tokenizer.core.buffers import pack_bytes, unpack

STEPS = ("bert_clean", "cjk_spaces", "strip_nonspacing", "lowercase")
SINCE_8 = 0x180F  # a mark that was unassigned then


def theirs(steps: set[str]) -> BertNormalizer:
    """The library's normalizer with some of its steps."""
    clean, cjk, strip, lower = (step in steps for step in STEPS)
    return BertNormalizer(clean_text=clean, handle_chinese_chars=cjk, strip_accents=strip, lowercase=lower)


@pytest.mark.parametrize("number", range(1, 16))
def test_every_choice_of_steps_does_what_the_library_does(number: int) -> None:
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


def test_few_characters_differ_and_all_of_them_are_newer() -> None:
    differ = [point for point in range(0x3100) if not 0xD800 <= point < 0xE000 and changed_since_8(point)]

    assert len(differ) < 150
    assert SINCE_8 in differ
    assert all(unicodedata.category(chr(point)) in {"Cf", "Mn", "Lu", "Cn", "Mc"} for point in differ)


@pytest.mark.parametrize("name", ["bert_clean", "lowercase", "+".join(STEPS), "nfc+bert_clean"])
def test_ascii_is_normalized_as_other_text_is(name: str) -> None:
    documents = [bytes(range(128)), b"", b"A\tB\x00C\r\n", b"[CLS]\tX", b"plain words"]
    keep = np.array([False, False, False, True, False])
    data, offsets = pack_bytes([b"before", *documents])

    found = unpack(*normalize_buffers(name, data, offsets[1:], keep))
    with_others, bounds = normalize_buffers(
        name, *pack_bytes([*documents, "é".encode()]), np.append(keep, False)
    )

    assert found == [
        text if kept else normalize(name, text.decode()).encode()
        for text, kept in zip(documents, keep, strict=True)
    ]
    assert unpack(with_others, bounds)[:-1] == found


def test_a_text_may_be_cut_where_the_boundary_is() -> None:
    text = "naïve 日本\t\u0301x\u0323\u0301 Ａ\u200bB e\u0301"
    name = "+".join(STEPS)
    for size in range(len(text)):
        data = text[:size].encode()
        at = final_boundary(name, data)
        assert normalize(name, data[:at].decode()) + normalize(
            name, data[at:].decode() + text[size:]
        ) == normalize(name, text)
