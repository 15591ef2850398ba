"""Bad input at the command line.

Each problem is reported once, with place, value, rule and fix. The exit code is 2 for wrong usage and 1 for
bad data or a failure of the machine. The store has only whole artifacts. A source with
`on_error = "quarantine"` continues without its bad documents, and lists them.
"""

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.small_disk import on_small_disk
from tests.test_flows.commands import Outcome, Tokmill
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


@dataclass(frozen=True)
class Case:
    """A project with a problem.

    Attributes:
        command: the cheapest command that detects it.
        code: the exit code it must have.
        says: parts of the message, in order: place, value, rule, fix.
        files: the project's files.
        profile: its profile.
    """

    command: str
    code: int
    says: tuple[str, ...]
    files: Mapping[str, str | bytes]
    profile: str = SOURCE + STAGES


def bad_document(place: str, reason: str, *says: str, file: str = "a.jsonl", data: str | bytes) -> Case:
    """Return the case of a source `s` of one file with a bad document at `place`."""
    fix = "or set on_error = 'quarantine'"
    return Case("run", 1, ("ingest: source 's': ", f"{place}: {reason} (", *says, fix), {f"s/{file}": data})


CASES = {
    "a broken JSONL line": bad_document(
        "a.jsonl, row 4 (line 5)",
        "broken_json",
        'unexpected end of data at character 15): \'{"text": "half\'; ',
        "every line or element must be one JSON value; repair it",
        data=f'{GOOD}{{"text": "half\n{GOOD}',
    ),
    "invalid UTF-8 in a text file": bad_document(
        "a.txt",
        "invalid_utf8",
        r"byte 0xe9 at offset 3 of the document (invalid continuation byte)): 'caf\xe9 noir'; ",
        "a document must be valid UTF-8; convert the file to UTF-8",
        file="a.txt",
        data=b"caf\xe9 noir",
    ),
    "a truncated .gz": bad_document(
        "a.jsonl.gz, row 0 (line 1)",
        "truncated_archive",
        "the gz file ends in the middle of frame 1",
        "a compressed file must be complete to its last frame; fetch or compress the file again",
        file="a.jsonl.gz",
        data=gzip.compress(GOOD.encode(), mtime=0)[:-6],
    ),
    "a null text": bad_document(
        "a.jsonl, row 4 (line 5)",
        "null_text",
        "'text' is null): '{\"text\": null}'; ",
        "a text must not be null; remove the row, or write an empty string",
        data=f'{GOOD}{{"text": null}}\n',
    ),
    "a missing column": Case(
        "run",
        1,
        ("ingest: source 's': a.csv: ", "text_column='text'", "is not among its columns (id, body)", "; set"),
        {"s/a.csv": "id,body\n1,the cat\n"},
    ),
    "an empty file": Case(
        "run",
        1,
        ("ingest: source 's': its file holds no document; ", "add text, "),
        {"s/a.jsonl": ""},
    ),
    "a special token that the profile forbids": Case(
        "run",
        1,
        ("encode[s/0]: a.jsonl, row 4 (line 5) holds ", "'<|endoftext|>'", "special_tokens_in_text"),
        {"s/a.jsonl": f'{GOOD}{{"text": "{END}"}}\n'},
        SOURCE + STAGES.replace("[encode]", "[encode]\nspecial_tokens_in_text = 'raise'"),
    ),
    "a glob that matches nothing": Case(
        "plan",
        1,
        ("source 's': ", "/s/*.jsonl' matches no file (", "/s holds a.json); "),
        {"s/a.json": "{}"},
        SOURCE.replace("s/*", "s/*.jsonl") + STAGES,
    ),
    "a weight for an unknown source": Case(
        "plan",
        2,
        ("profile 'p': ", "mix.weights.t: ", "; sources: s", "(p.toml)"),
        {"s/a.jsonl": GOOD},
        f"{SOURCE}{STAGES}[mix.weights]\ns = 1\nt = 2\n",
    ),
    "two sources of one name": Case(
        "plan",
        2,
        (
            "profile 'p': p.toml: line 3, column ",
            "two sources are named 's'",
            "rename",
        ),
        {"s/a.jsonl": GOOD},
        f"{SOURCE}{SOURCE}{STAGES}",
    ),
    "an unknown key": Case(
        "plan",
        2,
        ("profile 'p': ", "unknown key pack.sequence_lenght; did you mean pack.sequence_length?", "(p.toml)"),
        {"s/a.jsonl": GOOD},
        SOURCE + STAGES.replace("sequence_length", "sequence_lenght"),
    ),
}


def project(folder: Path, files: Mapping[str, str | bytes], profile: str) -> Path:
    """Write a project and return its folder."""
    for name, data in {**files, "p.toml": profile}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def message_of(outcome: Outcome) -> str:
    """Return the error message, from the end of standard error."""
    progress, found, message = outcome.err.partition("tokmill: ")
    assert found, outcome.err
    assert outcome.out == ""
    line = re.compile(r"(\S+ +(made|cached|failed|(\d+/\d+  )?at work) .*|  compiling kernels.*)\n")
    assert all(map(line.fullmatch, progress.splitlines(keepends=True))), progress
    assert "Traceback" not in message
    return message


def assert_sound(store: Path) -> None:
    """Check that all artifacts match their records, and that no partial artifact is left."""
    assert Store.open(store).verify() == []
    assert not list((store / ".tmp").glob("*"))


@pytest.mark.parametrize("name", CASES)
def test_it_is_told_once_and_nothing_half_made_stays(tokmill: Tokmill, name: str) -> None:
    case = CASES[name]
    project(tokmill.folder, case.files, case.profile)

    outcome = tokmill(case.command, "p.toml")
    message = message_of(outcome)

    assert outcome.code == case.code
    places = [message.find(part) for part in case.says]
    assert places == [0, *sorted(places[1:])], message
    assert [message.count(part) for part in case.says] == [1] * len(case.says), message
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
    corpus = store.resolve("corpus/p")
    assert {account.source: account.became for account in store.record(corpus).accounts} == {
        "archive": {"kept": 12, "quarantined:truncated_archive": 1},
        "lines": {
            "kept": 5,
            "quarantined:broken_json": 1,
            "quarantined:invalid_utf8": 1,
            "quarantined:missing_column": 1,
            "quarantined:null_text": 1,
        },
        "nothing": {"kept": 0},
        "whole": {"kept": 1, "quarantined:invalid_utf8": 1},
    }
    listed = Corpus.open(store.path(corpus)).table("quarantine").to_pylist()
    rows = [(bad["source"], bad["file"], bad["row"], bad["reason"]) for bad in listed]
    assert rows == [
        ("archive", "a.jsonl.gz", 12, "truncated_archive"),
        ("lines", "a.jsonl", 4, "broken_json"),
        ("lines", "a.jsonl", 5, "null_text"),
        ("lines", "a.jsonl", 6, "missing_column"),
        ("lines", "a.jsonl", 7, "invalid_utf8"),
        ("whole", "a.txt", 0, "invalid_utf8"),
    ]
    for source, file, row, reason in rows:
        assert re.search(rf"^{source} +{re.escape(file)} +{row} +{reason} ", shown, re.MULTILINE)
    assert store.record(store.resolve("encoded/p")).metrics["num_documents"] == 18
    assert_sound(tokmill.store)


ON_SMALL_DISK = """
tokmill() { "$PYTHON" -m tokmill "$@"; echo $?; }
tokmill run p.toml --no-prefect >run.out 2>run.err
ls -A store/.tmp >left.out
tokmill store verify >verify.out 2>&1
mount -o remount,size=64m "$0"
tokmill run p.toml --no-prefect --json >again.out 2>again.err
"""


@pytest.mark.slow
def test_a_full_disk_is_told_and_the_run_goes_on_once_there_is_room(tokmill: Tokmill) -> None:
    """Only the tokens do not fit on the disk."""
    project(tokmill.folder, {"s/a.txt": GOOD * 12_000}, SOURCE + STAGES)
    environment = {**tokmill.environment, "TOKMILL_STORE": str(tokmill.store), "PYTHON": sys.executable}
    command = on_small_disk(tokmill.store, "3m", ON_SMALL_DISK)
    done = subprocess.run(command, cwd=tokmill.folder, env=environment, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")

    said = {path.stem: path.read_text() for path in tokmill.folder.glob("*.out")}
    refused = (tokmill.folder / "run.err").read_text()
    assert said["run"] == "1\n"
    assert re.search(
        r"^tokmill: (encode\[s/0\]: encoded_shard|audit\[s/0\]: audit_shard)/p\.s/0 was not published: no "
        r"space left",
        refused,
        re.MULTILINE,
    )
    assert refused.endswith("; make room and run again\n")
    assert "Traceback" not in refused
    assert said["left"] == ""
    assert said["verify"].endswith("no problems\n0\n")
    again = json.loads(said["again"].removesuffix("0\n"))
    cached = {task["task"].partition("[")[0] for task in again["tasks"] if task["cached"]}
    assert cached - {"audit"} == {"ingest", "count", "balance", "train"}  # the audit runs beside
