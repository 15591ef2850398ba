"""`tokmill compare`: tokenizers side by side on the same text."""

import json
from pathlib import Path

import pytest

from tests.test_flows.commands import Tokmill
from tokmill import tokenizer

TEXT = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog"]
LINES = {"eng": "the cat sat\na dog\n", "deu": "die Katze saß\nein Hund\n"}


@pytest.fixture
def folder(tokmill: Tokmill) -> Path:
    """A folder with two tokenizers, text, and parallel text."""
    small = tokenizer.train(TEXT, vocab_size=262)
    large = tokenizer.train(TEXT, vocab_size=270)
    words = tokenizer.train(TEXT, family="word_level", vocab_size=20, special_tokens=["[UNK]"])
    for name, tok in {"small": small, "large": large, "words": words}.items():
        tok.save(tokmill.folder / name)
    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXT)
    (tokmill.folder / "text.jsonl").write_text(rows, "utf-8")
    for language, text in LINES.items():
        (tokmill.folder / f"{language}.txt").write_text(text, "utf-8")
    return tokmill.folder


def test_the_first_is_what_the_others_are_measured_against(tokmill: Tokmill, folder: Path) -> None:
    asked = ("compare", "small", "large", "--text", "mine=text.jsonl", "--json")
    found = json.loads(tokmill(*asked).out)
    small, large = (tokenizer.load(folder / name) for name in ("small", "large"))
    lengths = [sum(map(len, tok.encode_batch(TEXT))) for tok in (small, large)]
    assert [row["num_tokens"] for row in found["texts"]] == lengths
    assert [row["relative_length"] for row in found["texts"]] == [1, round(lengths[1] / lengths[0], 6)]
    shared = [row["num_shared"] for row in found["tokenizers"]]
    assert shared == [262, 262]  # what a longer training adds comes after


def test_a_tokenizer_that_loses_text_has_no_bits_per_byte(tokmill: Tokmill, folder: Path) -> None:
    asked = ("compare", "small", "words", "--text", "text.jsonl", "--parallel", "eng=eng.txt")
    found = json.loads(tokmill(*asked, "--parallel", "deu=deu.txt", "--json").out)
    small, words = found["texts"]
    assert small["bits_per_byte"] is not None
    unknown = {(row["tokenizer"], row["language"]): row["unknown_share"] for row in found["parity"]}
    assert unknown["small", "deu"] is None
    assert unknown["words", "deu"] > 0 == unknown["words", "eng"]
    assert (words["unknown_share"], words["changed_share"]) == (0, 0)
    shown = tokmill(*asked, "--parallel", "deu=deu.txt").out
    assert "premium over eng, on 2 lines" in shown
    assert "* some of the text is unknown" in shown


def test_a_tokenizer_that_loses_text_is_marked_and_comes_last(tokmill: Tokmill, folder: Path) -> None:
    (folder / "unseen.txt").write_text("Zebras, zebras.", "utf-8")
    shown = tokmill("compare", "words", "small", "--text", "unseen.txt").out
    _, text = shown.split("unseen.txt: 1 document, ")
    assert [line.split()[:2] for line in text.splitlines() if line.startswith(("small", "words"))] == [
        ["small", text.split("small")[1].split()[0]],
        ["words", "(lossy)"],
    ]
    assert "lossy: a part of the text is unknown" in text
    found = tokmill("compare", "words", "small", "--text", "unseen.txt", "--json").document["texts"]
    assert {row["tokenizer"]: row["lossy"] for row in found} == {"words": True, "small": False}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("small",), "give text with --text, or parallel text with --parallel"),
        (("small", "small", "--text", "text.jsonl"), "tokenizers: 'small' is named twice"),
        (("small", "--text", "x=text.jsonl", "--text", "x=text.jsonl"), "--text: 'x' is named twice"),
        (("small", "--text", "all=text.jsonl"), "'all' is what all together are called"),
        (("small", "--parallel", "*=eng.txt"), "'*' is what all together are called"),
        (("small", "--parallel", "=eng.txt"), "'' names no language"),
        (("small", "--parallel", "e=eng.txt", "--parallel", "e=deu.txt"), "--parallel: 'e' is named twice"),
        (("small", "--parallel", "e=empty.txt", "--parallel", "d=empty.txt"), "e has 0 lines"),
        (
            ("small", "--parallel", "e=eng.txt", "--parallel", "d=latin.txt"),
            "latin.txt is not UTF-8 at byte 2",
        ),
        (("small", "--text", "latin.txt"), "invalid_utf8"),
        (("small", "nowhere", "--text", "text.jsonl"), "nowhere"),
        (("small", "--text", "none.txt"), "matches no file"),
        (("small", "--parallel", "eng"), "write LANGUAGE=FILE"),
        (("small", "--parallel", "eng=eng.txt", "--parallel", "x=text.jsonl"), "x has 3 lines and eng 2"),
        (
            ("small", "--parallel", "eng=eng.txt", "--parallel", "x=gap.txt"),
            "line 2 of x is blank, that of eng",
        ),
    ],
)
def test_bad_input(tokmill: Tokmill, folder: Path, words: tuple[str, ...], says: str) -> None:
    (folder / "empty.txt").write_text("", "utf-8")
    (folder / "gap.txt").write_text("one\n \n", "utf-8")
    (folder / "latin.txt").write_bytes(b"Gr\xf6\xdfe\n\n")
    done = tokmill("compare", *words)
    assert done.code != 0
    assert says in done.err
    assert "Traceback" not in done.err
    assert "a bug in tokmill" not in done.err


def test_what_cannot_be_measured_is_said(tokmill: Tokmill, folder: Path) -> None:
    (folder / "a=b.txt").write_text("", "utf-8")
    (folder / "blank.txt").write_text("\n\n", "utf-8")
    done = tokmill("compare", "small", "large", "--text", "a=b.txt", "--text", "text.jsonl")
    assert "a=b.txt: 0 documents, 0 bytes\nnothing to measure: it holds no text" in done.out
    assert "text.jsonl: 3 documents, 59 bytes\ntokenizer   bytes per token" in done.out
    done = tokmill("compare", "small", "--parallel", "eng=eng.txt")
    assert "one language alone" in done.out
    done = tokmill("compare", "small", "--parallel", "none=blank.txt", "--parallel", "no=blank.txt")
    assert "none has no tokens" in done.out
    assert "nan" not in done.out.lower()


def test_a_byte_order_mark_is_no_text(tokmill: Tokmill, folder: Path) -> None:
    (folder / "bom.txt").write_bytes(b"\xef\xbb\xbf" + (folder / "eng.txt").read_bytes())
    found = tokmill(
        "compare", "small", "--parallel", "a=eng.txt", "--parallel", "b=bom.txt", "--json"
    ).document
    assert [row["premium"] for row in found["parity"]][:2] == [1.0, 1.0]


def test_tokenizers_of_one_name_are_called_by_their_paths(tokmill: Tokmill, folder: Path) -> None:
    tokenizer.load(folder / "large").save(folder / "other" / "small")
    found = tokmill("compare", "small", "other/small", "--text", "text.jsonl", "--json").document
    assert [row["tokenizer"] for row in found["tokenizers"]] == ["small", "other/small"]


def test_all_of_a_text_may_be_read(tokmill: Tokmill, folder: Path) -> None:
    found = tokmill("compare", "small", "--text", "text.jsonl", "--megabytes", "inf", "--json").document
    assert found["texts"][0]["num_documents"] == len(TEXT)


def test_names_are_no_markup(tokmill: Tokmill, folder: Path) -> None:
    tokenizer.load(folder / "large").save(folder / "[b]large[")
    done = tokmill("compare", "small", "[b]large[", "--text", "[/i]=text.jsonl", "--parallel", "[u]=eng.txt")
    assert "[/i]: 3 documents" in done.out
    assert ["language", "small", "[b]large["] in [line.split() for line in done.out.splitlines()]
    assert "premium over [u]" in done.out
