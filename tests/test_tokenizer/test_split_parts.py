"""Pre-tokenizers of other libraries as expressions: behaviors, words and punctuation, read and written."""

import doctest
import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.test_tokenizer.conftest import TRAINING_TEXTS, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, PatternError, Tokenizer
from tokmill.tokenizer.reference import splits as reference
from tokmill.tokenizer.splitting import SPLIT_PATTERNS, compile_pattern
from tokmill.tokenizer.splitting.patterns import with_behavior

BEHAVIORS = ["isolated", "contiguous", "merged_with_previous", "merged_with_next"]
EXPRESSIONS = ["-", r"[!-/:-@\[-`{-~\p{P}]", r"\s+", r"\p{N}{1,3}", "ab|a", r"--|-", r"\p{L}+-?"]
texts = st.text(st.sampled_from("ab- .1。\n"), max_size=24)
NASTY = [
    "",
    "-",
    "--",
    "a",
    "-a-",
    "a--b-c",
    " .. a",
    "1234-56",
    "\n\n",
    "x\u0301-\u0301",
    "😀—-😀",
    "-" * 200,
]


@pytest.mark.parametrize(
    ("behavior", "cut"),
    [
        ("isolated", ["the", "-", "-", "final", "-", "countdown"]),
        ("contiguous", ["the", "--", "final", "-", "countdown"]),
        ("merged_with_previous", ["the-", "-", "final-", "countdown"]),
        ("merged_with_next", ["the", "-", "-final", "-countdown"]),
    ],
)
def test_by_hand(behavior: Any, cut: list[str]) -> None:
    splitter = compile_pattern(with_behavior("-", behavior))
    assert splitter.engine == "automaton"
    assert splitter.split_text("the--final-countdown") == cut


def test_the_examples_of_the_reference() -> None:
    assert doctest.testmod(reference).failed == 0


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_equals_the_reference_and_tokenizers(expression: str, behavior: Any) -> None:
    splitter = compile_pattern(with_behavior(expression, behavior))
    theirs = pre_tokenizers.Split(tokenizers.Regex(expression), behavior)
    written = pre_tokenizers.Split(tokenizers.Regex(with_behavior(expression, behavior)), "isolated")

    @given(texts)
    def check(text: str) -> None:
        cut = splitter.split_text(text)
        assert cut == reference.split(expression, text, behavior)
        assert cut == [piece for piece, _ in theirs.pre_tokenize_str(text)]
        assert cut == [piece for piece, _ in written.pre_tokenize_str(text)]

    check()
    for text in NASTY:
        assert splitter.split_text(text) == reference.split(expression, text, behavior)


def test_flags_at_the_beginning_are_refused() -> None:
    with pytest.raises(PatternError, match="begins with flags"):
        with_behavior("(?i)ab", "contiguous")


def test_long_texts_take_linear_time_on_the_automaton() -> None:
    for behavior in BEHAVIORS:
        splitter = compile_pattern(with_behavior("-", behavior))  # type: ignore[arg-type]
        assert splitter.engine == "automaton"
        assert splitter.split_text("a" * 1_000_000) == ["a" * 1_000_000]


KEEPS = {"byte_bpe": 300, "unigram": 90, "word_level": 60}
LOSES = {"wordpiece": 120, "word_bpe": 120}


def made(family: str) -> Tokenizer:
    size = (KEEPS | LOSES)[family]
    pattern = "gpt2" if family in KEEPS else "whitespace_split"
    return tokenizer.train(
        TRAINING_TEXTS, vocab_size=size, family=family, split_pattern=pattern, allow_smaller=True
    )


def with_steps(tok: Tokenizer, folder: Path, steps: list[dict[str, Any]]) -> Path:
    """A file with other pre-tokenizers, before the `ByteLevel` of those that have one."""
    file = next(file for file in tok.save(folder, "huggingface") if file.name == "tokenizer.json")
    content = json.loads(file.read_bytes())
    if tok.definition.family == "byte_bpe":
        steps = [
            *steps,
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ]
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def split_by(pattern: dict[str, str], behavior: str, *, invert: bool = False) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def punctuation(behavior: str) -> dict[str, Any]:
    return {"type": "Punctuation", "behavior": behavior}


DIGITS = {"type": "Digits", "individual_digits": True}
STEPS = [
    [punctuation("Isolated")],
    [punctuation("Contiguous"), DIGITS],
    [punctuation("MergedWithPrevious")],
    [punctuation("MergedWithNext"), {"type": "Digits", "individual_digits": False}],
    [split_by({"String": "e"}, "MergedWithPrevious")],
    [split_by({"String": "e"}, "MergedWithNext")],
    [split_by({"Regex": "[aeiou]"}, "Contiguous")],
    [split_by({"Regex": r"\s"}, "Isolated"), {"type": "Sequence", "pretokenizers": [DIGITS]}],
]
STEPS_OF_WORDS = [
    [{"type": "Whitespace"}],
    [{"type": "WhitespaceSplit"}],
    [{"type": "WhitespaceSplit"}, punctuation("Isolated")],
    [{"type": "WhitespaceSplit"}, punctuation("MergedWithPrevious"), DIGITS],
    [punctuation("Contiguous"), {"type": "WhitespaceSplit"}],
    [DIGITS, {"type": "Whitespace"}],
    [{"type": "BertPreTokenizer"}, DIGITS],
    [split_by({"Regex": r"\s+"}, "Removed"), punctuation("Isolated")],
    [{"type": "UnicodeScripts"}, {"type": "WhitespaceSplit"}],
    [{"type": "Whitespace"}, {"type": "UnicodeScripts"}, DIGITS],
    [split_by({"Regex": r"\w+|[^\w\s]+"}, "Removed", invert=True)],
    [split_by({"Regex": r"\S+"}, "Removed", invert=True), split_by({"String": "e"}, "MergedWithNext")],
]
CASES = [(family, steps) for family in KEEPS for steps in STEPS]
CASES += [(family, steps) for family in LOSES for steps in STEPS_OF_WORDS]


@pytest.mark.parametrize(("family", "steps"), CASES)
def test_files_are_read_as_tokenizers_reads_them(
    family: str, steps: list[dict[str, Any]], tmp_path: Path
) -> None:
    file = with_steps(made(family), tmp_path, steps)
    theirs, ours = tokenizers.Tokenizer.from_file(str(file)), tokenizer.load(file)
    again = tokenizer.load(*[f for f in ours.save(tmp_path / "again", "huggingface") if f.name == file.name])
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "again" / file.name))
    for text in [*TRAINING_TEXTS, *NASTY, "the quick, brown-fox's 12 345... \t\n (x_y)  «été»"]:
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == ids, text
        assert again.encode(text) == ids
        assert written.encode(text, add_special_tokens=False).ids == ids
        assert list(ours.encode_iterable([*text])) == ids


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("step", "name"),
    [
        (pre_tokenizers.Whitespace(), "whitespace"),
        (pre_tokenizers.WhitespaceSplit(), "whitespace_split"),
        (pre_tokenizers.Punctuation(), "punctuation"),
    ],
)
def test_real_text_is_cut_alike(shared_data: Path, step: Any, name: str) -> None:
    splitter = compile_pattern(name)
    for text in (text[:20_000] for text in ntrex(shared_data).values()):
        theirs = [piece for piece, _ in step.pre_tokenize_str(text)]
        ours = splitter.split_text(text)
        assert (ours if name == "punctuation" else [piece for piece in ours if piece.strip()]) == theirs


@pytest.mark.shared_data
def test_real_text_is_cut_by_scripts_alike(shared_data: Path) -> None:
    splitter, theirs = compile_pattern("unicode_scripts"), pre_tokenizers.UnicodeScripts()
    assert splitter.engine == "automaton"
    for text in (text[:30_000] for text in ntrex(shared_data).values()):
        assert splitter.split_text(text) == [piece for piece, _ in theirs.pre_tokenize_str(text)]


@given(st.text(st.sampled_from("ab гд 日ごカー가x1.,\t\u0301é語 "), max_size=20))
def test_scripts_are_those_of_tokenizers_but_for_spaces_at_the_beginning(text: str) -> None:
    cut = compile_pattern("unicode_scripts").split_text(text)
    rest = cut[1:] if cut and not cut[0].strip(" ") else cut
    assert rest == [piece for piece, _ in pre_tokenizers.UnicodeScripts().pre_tokenize_str(text)]


def test_scripts_are_not_written_where_spaces_count(tmp_path: Path) -> None:
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=300, split_pattern="unicode_scripts")
    with pytest.raises(FormatError, match="in another way"):
        tok.save(tmp_path, "huggingface")


@pytest.mark.parametrize("name", ["whitespace", "whitespace_split", "punctuation"])
@pytest.mark.parametrize("family", [*KEEPS, *LOSES, "char_bpe"])
def test_every_family_is_trained_with_the_names(family: str, name: str, tmp_path: Path) -> None:
    options = {"family": family, "split_pattern": name, "allow_smaller": True}
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=(KEEPS | LOSES).get(family, 90), **options)
    assert tokenizer.load(*tok.save(tmp_path / "own")).spec() == tok.spec()
    if family == "char_bpe":
        return
    tok.save(tmp_path, "huggingface")
    theirs, again = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")), tokenizer.load(tmp_path)
    for text in [*TRAINING_TEXTS, "the_fox's, 12!?  dog\n"]:
        assert theirs.encode(text, add_special_tokens=False).ids == tok.encode(text) == again.encode(text)
    assert again.definition.pre_tokenizer.chain == (SPLIT_PATTERNS[name],)


@pytest.mark.parametrize("family", KEEPS)
@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"type": "Whitespace"}, "leaves white space out, which only the families wordpiece and word_bpe do"),
        ({"type": "WhitespaceSplit"}, "leaves white space out"),
        ({"type": "BertPreTokenizer"}, "leaves white space out"),
        ({"type": "UnicodeScripts"}, "leaves out the spaces that a text begins with"),
        ({"type": "CharDelimiterSplit", "delimiter": "-"}, "leaves its delimiter out"),
        ({"type": "FixedLength", "length": 3}, "only Split, Punctuation, Digits"),
        (punctuation("Removed"), "leaves text out"),
        (split_by({"String": "-"}, "Removed"), "leaves text out"),
        (split_by({"Regex": SPLIT_PATTERNS["punctuation"]}, "Removed", invert=True), "leaves text out"),
        (split_by({"String": "-"}, "MergedWithNext", invert=True), "MergedWithNext can be done without it"),
    ],
)
def test_what_a_family_cannot_do_is_refused_by_name(
    family: str, step: dict[str, Any], says: str, tmp_path: Path
) -> None:
    file = with_steps(made(family), tmp_path, [step])
    with pytest.raises(FormatError, match=says):
        tokenizer.load(file)


@pytest.mark.parametrize("family", LOSES)
@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([punctuation("Isolated")], "a step must leave white space out"),
        ([split_by({"String": " "}, "Removed")], "leaves text out"),
        ([split_by({"Regex": r"\s+"}, "Removed", invert=True)], "leaves text out"),
        ([punctuation("Removed"), {"type": "WhitespaceSplit"}], "leaves text out"),
    ],
)
def test_what_words_cannot_do_is_refused_by_name(
    family: str, steps: list[dict[str, Any]], says: str, tmp_path: Path
) -> None:
    file = with_steps(made(family), tmp_path, steps)
    with pytest.raises(FormatError, match=says):
        tokenizer.load(file)
