"""Parts in any combination: pipelines that are drawn at random give the ids that tokenizers gives."""

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer

SIZES = {"byte_bpe": 300, "unigram": 90, "word_level": 60, "wordpiece": 120, "word_bpe": 120}
LOSES = {"wordpiece", "word_bpe"}

NORMALIZERS: list[dict[str, Any]] = [
    {"type": "NFC"},
    {"type": "NFD"},
    {"type": "NFKC"},
    {"type": "NFKD"},
    {"type": "Lowercase"},
    {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Prepend", "prepend": "fox "},
    {"type": "Replace", "pattern": {"String": " "}, "content": "  "},
    {"type": "Replace", "pattern": {"Regex": "[0-9]+|the"}, "content": "e\u0301"},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
]


def split(expression: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": False}


PRE_TOKENIZERS: list[dict[str, Any]] = [
    *({"type": "Punctuation", "behavior": how} for how in ("Isolated", "Contiguous", "MergedWithPrevious")),
    *(split(r"\s", how) for how in ("Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext")),
    split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", "Isolated"),
    split("[aeiou]", "MergedWithNext"),
    split(r"\p{L}+|\p{N}", "Contiguous"),
    {"type": "Digits", "individual_digits": True},
    {"type": "Digits", "individual_digits": False},
]
DROPPING = [
    {"type": "UnicodeScripts"},
    {"type": "Whitespace"},
    {"type": "WhitespaceSplit"},
    {"type": "BertPreTokenizer"},
]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

# Characters whose classes are the same in the library's tables of Unicode 8
texts = st.text(
    st.sampled_from("the foxquicklazydog.,;-'’!1234567890ßéöÜÀ今天気猫日本ぁガｶﾞＡ\u0301\u0323 \t\n\u3000İΣ½"),
    max_size=40,
)


@lru_cache
def content_of(family: str) -> str:
    """The file of a small tokenizer."""
    pattern = "whitespace_split" if family in LOSES else "gpt2"
    tok = tokenizer.train(
        [*TRAINING_TEXTS, "e\u0301 fox éà 12 ,. ! ' -"],
        vocab_size=SIZES[family],
        family=family,
        split_pattern=pattern,
        allow_smaller=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        tok.save(folder, "huggingface")
        return (Path(folder) / "tokenizer.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", SIZES)
@given(
    st.lists(st.sampled_from(NORMALIZERS), max_size=4),
    st.lists(st.sampled_from(PRE_TOKENIZERS), min_size=1, max_size=3),
    st.sampled_from(DROPPING),
    st.integers(0, 3),
    st.lists(texts, min_size=1, max_size=4),
)
@settings(max_examples=40)
def test_any_pipeline_gives_the_ids_of_tokenizers(
    family: str,
    normalizers: list[dict[str, Any]],
    steps: list[dict[str, Any]],
    dropping: dict[str, Any],
    place: int,
    given_texts: list[str],
) -> None:
    if family in LOSES:
        steps = [*steps[:place], dropping, *steps[place:]]
        steps += [{"type": "WhitespaceSplit"}] if dropping["type"] == "UnicodeScripts" else []
    if family == "byte_bpe":
        steps = [*steps, BYTE_LEVEL]
    content = json.loads(content_of(family))
    content["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(json.dumps(content), encoding="utf-8")
        theirs, ours = tokenizers.Tokenizer.from_file(str(file)), tokenizer.load(file)
        ours.save(Path(folder) / "again", "huggingface")
        again = tokenizers.Tokenizer.from_file(str(Path(folder) / "again" / "tokenizer.json"))
    expected = [theirs.encode(text, add_special_tokens=False).ids for text in given_texts]
    assert ours.encode_batch(given_texts).to_lists() == expected
    assert [again.encode(text, add_special_tokens=False).ids for text in given_texts] == expected
    assert [list(ours.encode_iterable([*text])) for text in given_texts] == expected
