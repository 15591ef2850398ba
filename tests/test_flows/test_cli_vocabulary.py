"""`tokmill vocab extend`, `trim` and `resize`: from a tokenizer's file to a resized model."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.test_tasks.test_embeddings import EMBED, values_of, written
from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.flows.commands.main import main

RESIZE = ("vocab", "resize", "m", "--plan", "p", "--out", "o")


@pytest.fixture
def tokmill(capsys, monkeypatch, tmp_path):
    """Run a command in a folder with a tokenizer, a text, and terms; gives exit code, output and errors."""
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=350, special_tokens=["<|end|>"])
    tok.save(tmp_path / "old", format="huggingface")
    (tmp_path / "notes.txt").write_text("An okapi, a zebra; the zebra and the okapi. " * 9, "utf-8")
    (tmp_path / "other.txt").write_text("the quick brown fox", "utf-8")
    (tmp_path / "terms.txt").write_text("\ufeff# animals\r\nzebra\r\n\nzebra\nthe\n", "utf-8", newline="")
    monkeypatch.setenv("TOKMILL_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def extended(tokmill, *more: str) -> Path:
    """The folder of an extended tokenizer."""
    files = ("--terms", "terms.txt", "--corpus", "notes.txt")
    asked = ("vocab", "extend", "old", *files, "--name", "new", *more)
    code, out, _ = tokmill(*asked, "--json")
    assert code == 0
    return Path(json.loads(out)["path"])


def test_terms_are_added_and_reported(tokmill):
    path = extended(tokmill, "--mine", "1", "--others", "other.txt")
    old, new = tokenizer.load("old"), tokenizer.load(path)
    added = [new.token_bytes(token) for token in range(old.vocab_size, new.vocab_size)]
    assert added == [b" zebra", b"zebra", b" okapi"]
    report = json.loads((path / "report.json").read_text("utf-8"))
    text = Path("notes.txt").read_text("utf-8")
    (measured,), (other,) = report["texts"], report["others"]
    assert measured["num_tokens_before"] == len(old.encode(text))
    assert measured["num_tokens_after"] == len(new.encode(text))
    assert other["num_tokens_before"] == other["num_tokens_after"] == len(old.encode("the quick brown fox"))
    assert " the" in report["skipped"]
    assert "` okapi`" in (path / "report.md").read_text("utf-8")
    assert tokenizer.load("tokenizer/new", store="store") == new


def test_each_term_says_what_it_saves_and_useless_ones_are_warned_of(tokmill):
    Path("terms.txt").write_text("zebra\n肺炎\n心肌\n", "utf-8")
    Path("notes.txt").write_text("A zebra has no zebra. 因肺炎入院，急性心肌梗死。\n", "utf-8")
    code, out, _ = tokmill(
        "vocab", "extend", "old", "--terms", "terms.txt", "--corpus", "notes.txt", "--name", "new"
    )
    assert code == 0
    each = 2 * (len(tokenizer.load("old").encode(" zebra")) - 1)
    assert ["zebra", str(each)] in [line.split() for line in out.splitlines()]
    assert "warning: 2 of 3 terms save no token in the texts: '肺炎', '心肌'." in out
    path = next(Path("store/tokenizer").glob("*/report.json"))
    report = json.loads(path.read_text("utf-8"))
    saved = [token["num_occurrences"] * (len(token["parts"]) - 1) for token in report["changed"]]
    (measured,) = report["texts"]
    assert sum(saved) == measured["num_tokens_before"] - measured["num_tokens_after"] == each
    _, out, _ = tokmill("vocab", "extend", "old", "--terms", "terms.txt", "--name", "unmeasured")
    assert "not measured: name texts of the domain with --corpus" in out


def test_a_model_follows_its_tokenizer(tokmill, tmp_path):
    path = extended(tokmill)
    old = tokenizer.load("old")
    values = np.arange(old.vocab_size * 2, dtype="<f4").reshape(-1, 2)
    written(tmp_path / "model.safetensors", {EMBED: ("F32", values.shape, values.tobytes())})
    asked = ("vocab", "resize", "model.safetensors", "--plan", "tokenizer/new", "--out", "bigger")
    code, out, _ = tokmill(*asked)
    assert code == 0
    assert f"{old.vocab_size} × 2 → {old.vocab_size + 2} × 2" in out
    rows = values_of(tmp_path / "bigger" / "model.safetensors", EMBED)
    assert rows[: old.vocab_size].tolist() == values.tolist()
    assert rows[old.vocab_size].tolist() == pytest.approx(values[old.encode(" zebra")].mean(axis=0).tolist())
    by_file = ("vocab", "resize", "model.safetensors", "--plan", path / "embedding-plan.json", "--out")
    assert tokmill(*by_file, "again")[0] == 0
    assert tokmill(*by_file, "again")[0] == 2  # it exists
    same = (tmp_path / "again" / "model.safetensors").read_bytes()
    assert same == (tmp_path / "bigger" / "model.safetensors").read_bytes()


def test_a_vocabulary_is_trimmed(tokmill):
    code, out, _ = tokmill("vocab", "trim", "old", "--to", 300, "--corpus", "other.txt", "--json")
    assert code == 0
    small = tokenizer.load(json.loads(out)["path"])
    assert small.vocab_size == 300
    assert small.decode(small.encode("Größe 今天")) == "Größe 今天"
    assert small.encode("the quick brown fox", as_text=True)
    again = tokmill("vocab", "trim", "old", "--to", 300, "--corpus", "other.txt", "--json")[1]
    assert again == out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("vocab", "extend", "old"), 2, "tokmill: extend: there is nothing to add"),
        (("vocab", "extend", "old", "--mine", "3", "--corpus", "empty.txt"), 1, "are to be found are empty"),
        (
            ("vocab", "extend", "old", "--merges", "3", "--corpus", "empty.txt"),
            1,
            "are to be found are empty",
        ),
        (("vocab", "trim", "old", "--to", "300", "--corpus", "empty.txt"), 1, "the texts hold no token"),
        (("vocab", "extend", "old", "--terms", "missing.txt"), 2, "missing.txt cannot be read"),
        (("vocab", "extend", "nowhere", "--terms", "terms.txt"), 2, "nowhere"),
        (("vocab", "extend", "old", "--mine", "3"), 1, "no text to find them in"),
        (("vocab", "trim", "old", "--to", "300"), 2, "--corpus is needed"),
        (("vocab", "trim", "old", "--to", "9999", "--corpus", "notes.txt"), 1, "9999 must be from"),
        (("vocab", "trim", "old", "--to", "300", "--corpus", "none/*.txt"), 1, "none/*.txt"),
        (
            ("vocab", "extend", ".", "--terms", "terms.txt"),
            1,
            "holds 0 *.tiktoken files and none of tokmill.json",
        ),
        (
            ("vocab", "extend", "odd", "--terms", "terms.txt"),
            1,
            r"odd/\xff.txt' is not UTF-8; rename the file",
        ),
        (("vocab", "resize", "m", "--plan", "terms.txt", "--out", "o"), 2, "is not an embedding plan"),
        (("vocab", "resize", "m", "--plan", "missing.json", "--out", "o"), 2, ""),
        ((*RESIZE, "--seed", str(1 << 128)), 2, "'--seed'"),
        ((*RESIZE, "--pad-to-multiple-of", str(1 << 62)), 2, "'--pad-to-multiple-of'"),
    ],
)
def test_what_cannot_be_done_is_said(tokmill, tmp_path, arguments, code, message):
    (tmp_path / "empty.txt").write_text("")
    shutil.copytree("old", "odd")
    Path(os.fsdecode(b"odd/\xff.txt")).write_text("")
    found, _, err = tokmill(*arguments)
    assert found == code
    assert message in err
    assert "Traceback" not in err
    assert "pydantic" not in err


def test_a_command_that_was_killed_when_it_was_nearly_done_is_run_again(tokmill):
    tokmill("vocab", "extend", "old", "--terms", "terms.txt")
    steps = (
        ("vocab", "extend", "tokenizer/old", "--mine", "1"),
        ("vocab", "trim", "tokenizer/old", "--to", 300),
    )
    for number, command in enumerate(steps, 2):
        asked = (*command, "--corpus", "notes.txt", "--json")
        code, out, _ = tokmill(*asked)
        assert (code, json.loads(out)["artifact"]) == (0, f"tokenizer/old@v{number + 1}")
        assert tokmill(*asked)[:2] == (0, out)
    assert tokmill("vocab", "trim", "tokenizer/old@v4", "--to", 300, "--corpus", "notes.txt")[0] == 1
