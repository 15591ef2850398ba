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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("small",), "give text with --text, or parallel text with --parallel"),
        (("small", "small", "--text", "text.jsonl"), "two tokenizers have the same name"),
        (("small", "nowhere", "--text", "text.jsonl"), "nowhere"),
        (("small", "--text", "none.txt"), "matches no file"),
        (("small", "--parallel", "eng"), "write LANGUAGE=FILE"),
        (("small", "--parallel", "eng=eng.txt", "--parallel", "x=text.jsonl"), "x has 3 lines and eng 2"),
    ],
)
def test_bad_input(tokmill: Tokmill, folder: Path, words: tuple[str, ...], says: str) -> None:
    done = tokmill("compare", *words)
    assert done.code != 0
    assert says in done.err
    assert "Traceback" not in done.err
