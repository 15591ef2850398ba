"""Bad input at the command line, and what a run refuses when it has seen text or tokens.

Each problem is reported once, with place, value, rule and fix. The exit code is 2 for wrong usage and 1 for
bad data or a failure of the machine. The store has only whole artifacts. A source with
`on_error = "quarantine"` continues without its bad documents, and lists them.
"""

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.test_flows.commands import Outcome, Tokmill
from tokmill.flows.profile import load_profile
from tokmill.flows.run.planning import remarks_on
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.store import Store

GOOD = "".join(f'{{"text": "the {word} is {word} and {word}"}}\n' for word in ("cat", "dog", "sun", "sea"))
END = "<|endoftext|>"
SOURCE = '[sources.s]\nfiles = ["s/*"]\n'
STAGES = f"""
[train]
vocab_size = 260
special_tokens = ["{END}"]

[encode]
end_of_document = "{END}"

[pack]
sequence_length = 16
"""


TWO_WEIGHTS = f"{SOURCE}{STAGES}[mix.weights]\ns = 1\nt = 2\n"
FORBIDDEN = SOURCE + STAGES.replace("[encode]", "[encode]\nspecial_tokens_in_text = 'raise'")
CURRICULUM = f'{SOURCE}{STAGES}[mix.curriculum]\ndifficulty = "column:grade"\n'

# A command, its exit code, the parts of its message in order (place, value, rule, fix), files, and
# the profile.
CASES = {
    "a broken JSONL line": (
        "run", 1, ("ingest: source 's': ", "a.jsonl, row 4 (line 5): ", "broken_json (",
         'unexpected end of data at character 15): \'{"text": "half\'; ',
         "every line or element must be one JSON value; repair it", "or set on_error = 'quarantine'"),
        {"s/a.jsonl": f'{GOOD}{{"text": "half\n{GOOD}'}, None),
    "a missing column": (
        "run", 1, ("ingest: source 's': a.csv: ", "text_column='text'",
         "is not among its columns (id, body)", "; set"),
        {"s/a.csv": "id,body\n1,the cat\n"}, None),
    "an empty file": (
        "run", 1, ("ingest: source 's': its file holds no document; ", "add text, "), {"s/a.jsonl": ""},
         None),
    "a special token that the profile forbids": (
        "run", 1, ("encode[s/0]: a.jsonl, row 4 (line 5) holds ", "'<|endoftext|>'",
         "special_tokens_in_text"),
        {"s/a.jsonl": f'{GOOD}{{"text": "{END}"}}\n'}, FORBIDDEN),
    "a glob that matches nothing": (
        "plan", 1, ("source 's': ", "/s/*.jsonl' matches no file (", "/s holds a.json); "),
        {"s/a.json": "{}"}, SOURCE.replace("s/*", "s/*.jsonl") + STAGES),
    "a weight for an unknown source": (
        "plan", 2, ("profile 'p': ", "mix.weights.t: ", "; sources: s", "(p.toml)"),
        {"s/a.jsonl": GOOD}, TWO_WEIGHTS),
    "a column without values": (
        "run", 2, ("profile 'p': mix.curriculum: source 's': ", "no document has a value in column 'grade'",
         "; name another"), {"s/a.jsonl": GOOD}, CURRICULUM),
    "more tokens than there are": (
        "run", 1, ("mix: total_tokens=1000000 needs", "may be drawn 1 times. Feasible: ", "at least"),
        {"s/a.jsonl": GOOD}, f"{SOURCE}{STAGES}[mix]\ntotal_tokens = 1000000\n"),
    "a padding token that is not in the vocabulary": (
        "run", 1, ("pack[shard/0]: pad_id=260 must be below vocab_size=260; ", "use a token of"),
        {"s/a.jsonl": GOOD}, f"{SOURCE}{STAGES}pad_id = 260\n"),
}  # fmt: skip


def project(folder: Path, files: Mapping[str, str | bytes], profile: str) -> Path:
    """Write a project and return its folder."""
    for name, data in {**files, "p.toml": profile}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def message_of(outcome: Outcome) -> str:
    """Return the error message, from the end of standard error."""
    _, found, message = outcome.err.partition("tokmill: ")
    assert found, outcome.err
    assert (outcome.out, "Traceback" in message) == ("", False)
    return message


def assert_sound(store: Path) -> None:
    """Check that all artifacts match their records, and that no partial artifact is left."""
    assert Store.open(store).verify() == []
    assert not list((store / ".tmp").glob("*"))


@pytest.mark.parametrize("name", CASES)
def test_it_is_told_once_and_nothing_half_made_stays(tokmill: Tokmill, name: str) -> None:
    command, code, says, files, profile = CASES[name]
    project(tokmill.folder, files, profile or SOURCE + STAGES)

    outcome = tokmill(command, "p.toml")
    message = message_of(outcome)

    assert outcome.code == code
    places = [message.find(part) for part in says]
    assert places == [0, *sorted(places[1:])], message
    assert [message.count(part) for part in says] == [1] * len(says), message
    assert_sound(tokmill.store)


QUARANTINED = {
    "lines/a.jsonl": GOOD.encode()
    + b'{"text": "half\n{"text": null}\n{"txt": "x"}\n{"text": "\xff"}\n{"text": "end"}\n',
    "archive/a.jsonl.gz": gzip.compress(GOOD.encode() * 3, mtime=0)
    + gzip.compress(GOOD.encode(), mtime=0)[:-6],
    "whole/a.txt": b"caf\xe9 noir",
    "whole/b.txt": b"a good one",
    "nothing/a.jsonl": b"",
}
SOURCES = ("archive", "lines", "nothing", "whole")


def test_a_source_that_says_so_goes_on_without_its_bad_documents_and_lists_them(tokmill: Tokmill) -> None:
    tables = (f'[sources.{name}]\nfiles = ["{name}/*"]\non_error = "quarantine"\n' for name in SOURCES)
    project(tokmill.folder, QUARANTINED, "".join(tables) + STAGES)

    done = tokmill("run", "p.toml")
    shown = tokmill("show", "corpus/p").out

    assert done.code == 0, done.err
    assert "source 'nothing': its file holds no document" in done.err
    assert re.search(r"^ingest +made .* 18 documents · 6 quarantined · ", done.err, re.MULTILINE)
    assert re.search(r"^quarantine +\S+/quarantine\.parquet \(6 documents\)$", done.out, re.MULTILINE)
    assert "tokmill show corpus/p" in done.out
    store = Store.open(tokmill.store)
    listed = Corpus.open(store.path(store.resolve("corpus/p"))).table("quarantine").to_pylist()
    assert len(listed) == 6
    for bad in listed:
        row = f"^{bad['source']} +{re.escape(bad['file'])} +{bad['row']} +{bad['reason']} "
        assert re.search(row, shown, re.MULTILINE)
    assert store.record(store.resolve("encoded/p")).metrics["num_documents"] == 18
    assert_sound(tokmill.store)


TAMIL = "எல்லா மனிதர்களும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும் உரிமைகளிலும் சமமானவர்கள். "
MARKS = """
name = "marks"
[sources.plain]
files = ["plain.txt"]
[sources.tamil]
files = ["tamil/*.jsonl"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source whose words have marks in one long document, and one without."""
    (tmp_path / "tamil").mkdir()
    (tmp_path / "tamil" / "a.jsonl").write_text(json.dumps({"text": TAMIL * 4000}), "utf-8")
    (tmp_path / "tamil" / "b.jsonl").write_text("broken", "utf-8")
    (tmp_path / "plain.txt").write_text("plain text. " * 100, "utf-8")
    (tmp_path / "marks.toml").write_text(MARKS, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def remarks(folder: Path, *overrides: str) -> list[str]:
    """The remarks on the profile."""
    profile = load_profile(folder / "marks.toml", overrides)
    return remarks_on(profile, resolve_sources(profile, Store.open(folder / "store")))


@pytest.mark.parametrize("override", ["train.split_pattern=gpt2", "train.split_pattern=o200k"])
def test_marks_that_the_pattern_cuts_off_are_named_with_their_source(folder: Path, override: str) -> None:
    found = remarks(folder, override)
    assert len(found) == override.endswith("gpt2")
    assert all(one.startswith("source tamil: split_pattern='gpt2' cuts vowel signs") for one in found)
    assert all("in Tamil (" in one for one in found)


def test_nothing_is_said_where_nothing_is_trained_or_a_file_cannot_be_read(folder: Path) -> None:
    (folder / "some").write_text("x", "utf-8")
    assert remarks(folder, "tokenizer.use=some") == []
    (folder / "tamil" / "a.jsonl").write_bytes(b"\xff\xfe not json")
    assert remarks(folder, "train.split_pattern=gpt2") == []


def test_a_reason_that_quotes_what_is_not_unicode_is_shown_and_recorded(tokmill: Tokmill) -> None:
    (tokmill.folder / "a.csv").write_bytes(b"\xef\xbb\xbftext,id\nhello,1\n")
    profile = '[sources.s]\nfiles = ["a.csv"]\nencoding = "shift_jis"\n'
    (tokmill.folder / "b.toml").write_text(profile, encoding="utf-8")
    done = tokmill("run", "b.toml", "--until", "corpus")
    (run,) = tokmill("runs", "--json").document
    assert (done.code, run["state"]) == (1, "failed")
    assert "not among its columns" in done.err
    assert r"not among its columns (\udcff" in run["message"]
