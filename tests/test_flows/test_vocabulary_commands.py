"""`tokmill vocab extend`, `trim`, `resize`, `suspects`, and `tokmill report`."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.test_flows.commands import Tokmill
from tests.test_tasks.test_embeddings import EMBED, values_of, written
from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer

NOTES = ("--corpus", "notes.txt", "--json")


@pytest.fixture
def folder(tokmill: Tokmill) -> Path:
    """A folder with a tokenizer, texts, and terms."""
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=350, special_tokens=["<|end|>"])
    tok.save(tokmill.folder / "old", format="huggingface")
    for name, text in {
        "notes.txt": "An okapi, a zebra; the zebra and the okapi. " * 9,
        "other.txt": "the quick brown fox",
        "terms.txt": "\ufeff# animals\r\nzebra\r\n\nzebra\nthe\n",
        "empty.txt": "",
    }.items():
        (tokmill.folder / name).write_text(text, "utf-8", newline="")
    return tokmill.folder


def test_terms_are_added_and_reported_and_a_model_follows_its_tokenizer(
    tokmill: Tokmill, folder: Path
) -> None:
    asked = ("vocab", "extend", "old", "--terms", "terms.txt", "--name", "new", *NOTES)
    path = Path(tokmill(*asked, "--mine", "1", "--others", "other.txt").document["path"])
    old, new = tokenizer.load(folder / "old"), tokenizer.load(path)
    added = [new.token_bytes(token) for token in range(old.vocab_size, new.vocab_size)]
    assert added == [b" zebra", b"zebra", b" okapi"]
    report = json.loads((path / "report.json").read_text("utf-8"))
    text = (folder / "notes.txt").read_text("utf-8")
    (measured,), (other,) = report["texts"], report["others"]
    assert measured["num_tokens_before"] == len(old.encode(text))
    assert measured["num_tokens_after"] == len(new.encode(text))
    assert other["num_tokens_before"] == other["num_tokens_after"] == len(old.encode("the quick brown fox"))
    assert " the" in report["skipped"]
    assert "` okapi`" in (path / "report.md").read_text("utf-8")
    assert tokenizer.load("tokenizer/new", store=tokmill.store) == new

    values = np.arange(old.vocab_size * 2, dtype="<f4").reshape(-1, 2)
    written(folder / "model.safetensors", {EMBED: ("F32", values.shape, values.tobytes())})
    resize = ("vocab", "resize", "model.safetensors", "--plan")
    by_name = tokmill(*resize, "tokenizer/new", "--out", "bigger")
    assert f"{old.vocab_size} × 2 → {old.vocab_size + 3} × 2" in by_name.out
    rows = values_of(folder / "bigger" / "model.safetensors", EMBED)
    assert rows[: old.vocab_size].tolist() == values.tolist()
    assert rows[old.vocab_size].tolist() == pytest.approx(values[old.encode(" zebra")].mean(axis=0).tolist())
    by_file = (*resize, path / "embedding-plan.json", "--out", "again")
    assert [tokmill(*by_file).code for _ in range(2)] == [0, 2]  # then it exists
    same = [(folder / name / "model.safetensors").read_bytes() for name in ("again", "bigger")]
    assert same[0] == same[1]


def test_each_term_says_what_it_saves_and_useless_ones_are_warned_of(tokmill: Tokmill, folder: Path) -> None:
    (folder / "terms.txt").write_text("zebra\n肺炎\n心肌\n", "utf-8")
    (folder / "notes.txt").write_text("A zebra has no zebra. 因肺炎入院，急性心肌梗死。\n", "utf-8")
    asked = ("vocab", "extend", "old", "--terms", "terms.txt", "--name")
    done = tokmill(*asked, "new", "--corpus", "notes.txt")
    each = 2 * (len(tokenizer.load(folder / "old").encode(" zebra")) - 1)
    assert ["zebra", str(each)] in [line.split() for line in done.out.splitlines()]
    assert "warning: 2 of 3 terms save no token in the texts: '肺炎', '心肌'." in done.out
    (path,) = folder.glob("store/tokenizer/*/report.json")
    report = json.loads(path.read_text("utf-8"))
    saved = [token["num_occurrences"] * (len(token["parts"]) - 1) for token in report["changed"]]
    (measured,) = report["texts"]
    assert sum(saved) == measured["num_tokens_before"] - measured["num_tokens_after"] == each
    assert "not measured: name texts of the domain with --corpus" in tokmill(*asked, "unmeasured").out


def test_a_command_that_was_killed_when_it_was_nearly_done_is_run_again(
    tokmill: Tokmill, folder: Path
) -> None:
    tokmill("vocab", "extend", "old", "--terms", "terms.txt")
    steps = (("extend", "tokenizer/old", "--mine", "1"), ("trim", "tokenizer/old", "--to", "300"))
    for number, command in enumerate(steps, 3):
        first, again = (tokmill("vocab", *command, *NOTES) for _ in range(2))
        assert first.document["artifact"] == f"tokenizer/old@v{number}"
        assert again.out == first.out
    small = tokenizer.load(first.document["path"])
    assert small.vocab_size == 300
    assert small.decode(small.encode("Größe 今天")) == "Größe 今天"
    assert tokmill("vocab", "trim", "tokenizer/old@v4", "--to", "300", *NOTES).code == 1


WRONG = {
    "extend old": (2, "tokmill: extend: there is nothing to add"),
    "extend old --mine 3 --corpus empty.txt": (1, "are to be found are empty"),
    "extend old --terms missing.txt": (2, "missing.txt cannot be read"),
    "extend nowhere --terms terms.txt": (2, "nowhere"),
    "extend old --mine 3": (1, "no text to find them in"),
    "extend . --terms terms.txt": (1, "*.tiktoken files and none of tokmill.json"),
    "extend odd --terms terms.txt": (1, r"odd/\xff.txt' is not UTF-8; rename the file"),
    "trim old --to 300 --corpus empty.txt": (1, "the texts hold no token"),
    "trim old --to 300": (2, "--corpus is needed"),
    "trim old --to 9999 --corpus notes.txt": (1, "9999 must be from"),
    "trim old --to 300 --corpus none/*.txt": (1, "none/*.txt"),
    "resize m --plan terms.txt --out o": (2, "is not an embedding plan"),
    "resize m --plan missing.json --out o": (2, ""),
    f"resize m --plan p --out o --seed {1 << 128}": (2, "'--seed'"),
    f"resize m --plan p --out o --pad-to-multiple-of {1 << 62}": (2, "'--pad-to-multiple-of'"),
}


def test_what_cannot_be_done_is_said(tokmill: Tokmill, folder: Path) -> None:
    tokenizer.load(folder / "old").save(folder / "odd")
    (folder / os.fsdecode(b"odd/\xff.txt")).write_text("")
    for command, (code, message) in WRONG.items():
        done = tokmill("vocab", *command.split())
        assert (done.code, message in done.err) == (code, True), (command, done.err)
        assert not any(word in done.err for word in ("Traceback", "pydantic"))


@pytest.fixture
def model(project: Tokmill) -> str:
    """A model whose row of the first suspect is the shortest."""
    first = project("vocab", "suspects", "tiny", "--json").document["suspects"][0]["token_id"]
    rows = np.random.default_rng(1).normal(size=(600, 8)).astype(np.float32)
    rows[first] *= 1e-3
    save_file({"embed_tokens.weight": rows, "lm_head.weight": rows.copy()}, project.folder / "m.safetensors")
    return "m.safetensors"


def report(tokmill: Tokmill, name: str, out: str, *more: str) -> str:
    """Write a report; return its page."""
    done = tokmill("report", name, "--out", out, *more)
    assert done.code == 0, done.err
    return (tokmill.folder / out / "report.html").read_text("utf-8")


def test_a_report_has_suspects_other_tokenizers_and_what_a_model_learned(
    project: Tokmill, model: str
) -> None:
    tokenizer.train(["some other text"], vocab_size=260).save(project.folder / "other")
    page = report(project, "tiny", "report", "--compare", "other", "--embeddings", model)
    for words in (
        "Audit of a byte_bpe tokenizer with 600 tokens",
        "Suspects, the most suspicious first",
        ">other<",
        "Tokens that the model has learned least",
    ):
        assert words in page
    assert list((project.folder / "report" / "charts").glob("*.svg"))
    assert "report exists; name a new folder" in project("report", "tiny", "--out", "report").err
    assert "not audit or sweep" in project("report", "packed/tiny", "--out", "new").err
    assert not (project.folder / "new").exists()


def test_an_earlier_version_has_its_own_suspects(project: Tokmill) -> None:
    (path,) = project.store.glob("audit/*")
    project.run("tiny.toml", "--set", "train.vocab_size=500")
    project.run("tiny.toml", "--set", "name=again")  # all of it is cached
    for name in (path.name[:12], "audit/again"):
        page = report(project, name, name.replace("/", "-"))
        assert "with 600 tokens" in page
        assert "Suspects, the most suspicious first" in page


def test_suspects_stand_in_running_text_beside_what_a_model_learned(project: Tokmill, model: str) -> None:
    asked = ("vocab", "suspects", "usage/tiny", "--embeddings", model, "--json")
    found = project(*asked, "--limit", "3").document
    first, *_ = found["suspects"]
    assert (first["rank"], first["indicator_rank"], len(found["suspects"])) == (1, 1, 3)
    assert found["least_trained"][0]["suspect_rank"] == 1
    every = project(*asked, "--limit", "200").document["suspects"]
    shown = [row for row in every if row["context"]]  # of longer tokens that hold them
    assert len(shown) > len(every) / 2
    assert all(f"⟦{row['example']}⟧" in row["context"] for row in shown)

    save_file({"embed_tokens.weight": np.ones((10, 4), np.float32)}, project.folder / "small.safetensors")
    for command in (("vocab", "suspects", "tiny"), ("report", "tiny", "--out", "new")):
        done = project(*command, "--embeddings", "small.safetensors")
        assert (done.code, "10 rows" in done.err) == (1, True)
    assert not (project.folder / "new").exists()
    assert "give both, or neither" in project("vocab", "suspects", "tiny", "--tensor", "wte").err
    assert "name usage/NAME" in project("vocab", "suspects", "audit/tiny").err


TEXT = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog"]
LINES = {"eng": "the cat sat\na dog\n", "deu": "die Katze saß\nein Hund\n"}


@pytest.fixture
def texts(tokmill: Tokmill) -> Path:
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


def test_the_first_is_what_the_others_are_measured_against(tokmill: Tokmill, texts: Path) -> None:
    """A mark of byte order is no text, and names are told apart and no markup."""
    (texts / "bom.txt").write_bytes(b"\xef\xbb\xbf" + (texts / "eng.txt").read_bytes())
    tokenizer.load(texts / "large").save(texts / "other" / "small")
    asked = ["compare", "small", "other/small", "--text", "mine=text.jsonl", "--megabytes", "inf"]
    asked += ["--parallel", "a=eng.txt", "--parallel", "b=bom.txt", "--json"]
    found = tokmill(*asked).document
    lengths = [sum(map(len, tokenizer.load(texts / name).encode_batch(TEXT))) for name in ("small", "large")]
    assert [row["num_tokens"] for row in found["texts"]] == lengths
    assert [row["relative_length"] for row in found["texts"]] == [1, round(lengths[1] / lengths[0], 6)]
    assert [row["num_shared"] for row in found["tokenizers"]] == [262, 262]  # more training adds the rest
    assert [row["tokenizer"] for row in found["tokenizers"]] == ["small", "other/small"]
    assert [row["premium"] for row in found["parity"] if row["tokenizer"] == "small"][:2] == [1.0, 1.0]
    tokenizer.load(texts / "large").save(texts / "[b]large[")
    done = tokmill("compare", "small", "[b]large[", "--text", "[/i]=text.jsonl", "--parallel", "[u]=eng.txt")
    assert "[/i]: 3 documents" in done.out
    assert ["language", "small", "[b]large["] in [line.split() for line in done.out.splitlines()]
    assert "premium over [u]" in done.out


def test_a_tokenizer_that_loses_text_is_marked_and_comes_last(tokmill: Tokmill, texts: Path) -> None:
    (texts / "unseen.txt").write_text("Zebras, zebras.", "utf-8")
    asked = ("compare", "words", "small", "--text", "unseen.txt", "--text", "text.jsonl")
    asked += ("--parallel", "eng=eng.txt", "--parallel", "deu=deu.txt")
    found = tokmill(*asked, "--json").document
    rows = {(row["tokenizer"], row["text"]): row for row in found["texts"]}
    assert {key: row["lossy"] for key, row in rows.items() if key[1] == "unseen.txt"} == {
        ("words", "unseen.txt"): True,
        ("small", "unseen.txt"): False,
    }
    assert rows["small", "text.jsonl"]["bits_per_byte"] is not None
    known = rows["words", "text.jsonl"]
    assert (known["unknown_share"], known["changed_share"]) == (0, 0)
    unknown = {(row["tokenizer"], row["language"]): row["unknown_share"] for row in found["parity"]}
    assert unknown["small", "deu"] is None
    assert unknown["words", "deu"] > 0 == unknown["words", "eng"]
    shown = tokmill(*asked).out
    assert "premium over eng, on 2 lines" in shown
    assert "* some of the text is unknown" in shown
    text = shown.partition("unseen.txt: 1 document, ")[2].partition("text.jsonl")[0]
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("small", "words"))] == [
        "small",
        "words",
    ]
    assert "words (lossy)" in text
    assert "lossy: a part of the text is unknown" in text


SAID = {
    "": "give text with --text, or parallel text with --parallel",
    "small --text text.jsonl": "tokenizers: 'small' is named twice",
    "--text x=text.jsonl --text x=text.jsonl": "--text: 'x' is named twice",
    "--text all=text.jsonl": "'all' is what all together are called",
    "--parallel *=eng.txt": "'*' is what all together are called",
    "--parallel =eng.txt": "'' names no language",
    "--parallel e=eng.txt --parallel e=deu.txt": "--parallel: 'e' is named twice",
    "--text latin.txt": "invalid_utf8",
    "nowhere --text text.jsonl": "there is no store at",
    "--text none.txt": "matches no file",
    "--parallel eng": "write LANGUAGE=FILE",
    "--parallel eng=eng.txt --parallel x=text.jsonl": "x has 3 lines and eng 2",
    "--text a=b.txt": "a=b.txt: 0 documents, 0 bytes\nnothing to measure: it holds no text",
    "--parallel eng=eng.txt": "one language alone",
    "--parallel none=blank.txt --parallel no=blank.txt": "none has no tokens",
}


def test_what_cannot_be_compared_or_measured_is_said(tokmill: Tokmill, texts: Path) -> None:
    for name, data in {"latin": b"Gr\xf6\xdfe\n\n", "a=b": b"", "blank": b"\n\n"}.items():
        (texts / f"{name}.txt").write_bytes(data)
    for number, (words, said) in enumerate(SAID.items()):
        done = tokmill("compare", "small", *words.split())
        assert (done.code == 0) == (number >= len(SAID) - 3)
        assert said in done.out + done.err, words
        assert not any(word in (done.out + done.err).lower() for word in ("traceback", "a bug in", "nan"))
