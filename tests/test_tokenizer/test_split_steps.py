"""Parts in any combination: pipelines that are drawn at random give the ids that tokenizers gives."""

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.test_tokenizer.conftest import TRAINING_TEXTS, listed, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, PatternError
from tokmill.tokenizer.reference import splits as reference
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.splitting.patterns import with_behavior

BEHAVIORS = ["isolated", "contiguous", "merged_with_previous", "merged_with_next"]
EXPRESSIONS = ["-", r"[!-/:-@\[-`{-~\p{P}]", r"\s+", r"\p{N}{1,3}", "ab|a", r"--|-", r"\p{L}+-?"]
few = st.text(st.sampled_from("ab- .1。\n"), max_size=24)
NASTY = [*listed("|-|--|a|-a-|a--b-c| .. a|1234-56|\n\n|x\u0301-\u0301|😀—-😀", "|"), "-" * 200]


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_equals_the_reference_and_tokenizers(expression, behavior):
    splitter = compile_pattern(with_behavior(expression, behavior))
    theirs = pre_tokenizers.Split(tokenizers.Regex(expression), behavior)
    written = pre_tokenizers.Split(tokenizers.Regex(with_behavior(expression, behavior)), "isolated")

    @given(few)
    def check(text):
        cut = splitter.split_text(text)
        assert cut == reference.split(expression, text, behavior)
        assert cut == [piece for piece, _ in theirs.pre_tokenize_str(text)]
        assert cut == [piece for piece, _ in written.pre_tokenize_str(text)]

    check()
    for text in NASTY:
        assert splitter.split_text(text) == reference.split(expression, text, behavior)


def test_flags_at_the_beginning_are_refused():
    with pytest.raises(PatternError, match="begins with flags"):
        with_behavior("(?i)ab", "contiguous")


def test_long_texts_take_linear_time_on_the_automaton():
    for behavior in BEHAVIORS:
        splitter = compile_pattern(with_behavior("-", behavior))  # type: ignore[arg-type]
        assert splitter.engine == "automaton"
        assert splitter.split_text("a" * 1_000_000) == ["a" * 1_000_000]


def punctuation(behavior: str) -> dict[str, Any]:
    return {"type": "Punctuation", "behavior": behavior}


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("step", "name"),
    [
        (pre_tokenizers.Whitespace(), "whitespace"),
        (pre_tokenizers.WhitespaceSplit(), "whitespace_split"),
        (pre_tokenizers.Punctuation(), "punctuation"),
        (pre_tokenizers.UnicodeScripts(), "unicode_scripts"),
    ],
)
def test_real_text_is_cut_alike(shared_data, step, name):
    splitter = compile_pattern(name)
    for text in (text[:10_000] for text in ntrex(shared_data).values()):
        theirs = [piece for piece, _ in step.pre_tokenize_str(text)]
        ours = splitter.split_text(text)
        assert ([piece for piece in ours if piece.strip()] if name.startswith("w") else ours) == theirs


@given(st.text(st.sampled_from("ab гд 日ごカー가x1.,\t\u0301é語 "), max_size=20))
def test_scripts_are_those_of_tokenizers_but_for_spaces_at_the_beginning(text):
    cut = compile_pattern("unicode_scripts").split_text(text)
    rest = cut[1:] if cut and not cut[0].strip(" ") else cut
    assert rest == [piece for piece, _ in pre_tokenizers.UnicodeScripts().pre_tokenize_str(text)]


def test_scripts_are_not_written_where_spaces_count(tmp_path):
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=300, split_pattern="unicode_scripts")
    with pytest.raises(FormatError, match="in another way"):
        tok.save(tmp_path, "huggingface")


SIZES = {"byte_bpe": 300, "unigram": 90, "word_level": 60, "wordpiece": 120, "word_bpe": 120}
LOSES = {"wordpiece", "word_bpe"}
NORMALIZERS: list[dict[str, Any]] = [
    *({"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")),
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Prepend", "prepend": "fox "},
    {"type": "Replace", "pattern": {"String": " "}, "content": "  "},
    {"type": "Replace", "pattern": {"Regex": "[0-9]+|the"}, "content": "e\u0301"},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    | {"lowercase": True},
]


def split(expression: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": False}


BOUNDED = r"\b[^ \n][a-z]?|.\B"
PRE_TOKENIZERS: list[dict[str, Any]] = [
    *({"type": "Punctuation", "behavior": how} for how in ("Isolated", "Contiguous", "MergedWithPrevious")),
    *(split(r"\s", how) for how in ("Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext")),
    split(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", "Isolated"),
    split("[aeiou]", "MergedWithNext"),
    split(BOUNDED, "Isolated"),
    split(r"\p{L}+|\p{N}", "Contiguous"),
    split("e", "MergedWithPrevious") | {"pattern": {"String": "e"}},
    *({"type": "Digits", "individual_digits": each} for each in (True, False)),
    {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "MergedWithNext"}]},
]
DROPPING: list[dict[str, Any]] = [
    *({"type": name} for name in ("UnicodeScripts", "Whitespace", "WhitespaceSplit", "BertPreTokenizer")),
    split(r"\s+", "Removed"),
    *(split(each, "Removed") | {"invert": True} for each in (r"\w+|[^\w\s]+", r"\S+")),
]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
# Characters whose classes are the same in the library's tables of Unicode 8
texts = st.text(
    st.sampled_from(
        "the foxquicklazydog.,;-'’!1234567890ßéöÜÀ今天気猫日本ぁガｶﾞＡ\u0301\u0323 \t\n\u3000İΣ½²\u200c\u200d"
    ),
    max_size=40,
)


@lru_cache
def content_of(family: str) -> str:
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
@example([], PRE_TOKENIZERS[:1], DROPPING[-2], 0, ["1½", "a\u200db", ";²0"])
@example([], [split(BOUNDED, "Isolated")], DROPPING[4], 0, ["1½ a²", "a\u200db½"])
@settings(max_examples=40)
def test_any_pipeline_gives_the_ids_of_tokenizers(family, normalizers, steps, dropping, place, given_texts):
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
