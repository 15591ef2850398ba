"""`tokmill trace` and `takedown`: output for people and as JSON, and what is left of what was taken down."""

import json
import random
import shutil
from pathlib import Path

import pytest

from tests.test_flows.commands import InThisProcess, Tokmill, clean_environment
from tests.test_flows.corpora import InProcess, words
from tests.test_tasks.traced_line import traced_line
from tokmill.flows.commands.run import superseded_lines
from tokmill.flows.results import RunResult
from tokmill.tasks.store import Store
from tokmill.tasks.takedown.impact import impact_of
from tokmill.tasks.tracing import Origins, trace_document

WIDE = {"COLUMNS": "110"}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory):
    """A store with one line of artifacts, not to be changed."""
    return traced_line(tmp_path_factory.mktemp("traced"))


@pytest.fixture
def copied(line, tmp_path: Path) -> Tokmill:
    """The command line on a copy of that store."""
    shutil.copytree(line.store.root, tmp_path / "store")
    return InThisProcess(tmp_path, clean_environment())


def trace(line, *arguments: object, **changes: str):
    """Trace in the store that is not to be changed."""
    tokmill = InThisProcess(line.store.root.parent, clean_environment())
    return tokmill("trace", *arguments, TOKMILL_STORE=str(line.store.root), **WIDE, **changes)


def taken_down(copied: Tokmill, *documents: str, **more: str):
    """Take documents out of the packing."""
    (copied.folder / "list.txt").write_text("".join(f"{name}\n" for name in documents), encoding="utf-8")
    options = [word for name, value in more.items() for word in (f"--{name}", value) if word]
    return copied("data", "takedown", "packed/line", "-d", "list.txt", *options, **WIDE)


def test_sequences_and_documents_for_people_and_as_json_both_ways(line) -> None:
    shown = trace(line, "packed/line", "--sequence", 0).out
    heading, _, columns, _, *rows = shown.splitlines()
    assert heading.startswith("packed/line@v1, sequence 0: ")
    assert (columns.split()[0], rows[0].split()[0][:2]) == ("tokens", "0–")
    alone = [trace(line, "packed/line", "-s", number).out for number in (1, 0)]
    assert trace(line, "packed/line", "-s", 1, "-s", 0).out == "\n".join(alone)
    document = trace(line, "packed/line", "-d", "essays:essay.txt").out
    assert document.startswith("essays:essay.txt: source essays, essay.txt\n")
    assert "in no sequence: it was dropped" in trace(line, "packed/line", "-d", "web:tiny").out
    sequence, other = trace(line, "packed/line", "-s", 1, "-s", 0, "--json").document
    assert (sequence["packed"], sequence["sequence"], other["sequence"]) == ("packed/line@v1", 1, 0)
    for piece in sequence["pieces"]:
        documents = trace(line, "packed/line", "-d", piece["name"], "--json").document
        places = [(each["sequence"], each["start"]) for found in documents for each in found["pieces"]]
        assert (1, piece["start"]) in places


LISTED = ("data", "takedown", "packed/line@v1", "-d")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "packed/line"], "either --sequence N or --document SOURCE:ID"),
        (["trace", "packed/line", "-s", "1", "-d", "web:first"], "either --sequence N or --document"),
        (["trace", "packed/line", "-s", "9999"], "sequence 9999: packed/line@v1 has the sequences 0 to"),
        (["trace", "corpus/line", "-s", "0"], "corpus/line is not a packed artifact"),
        (["trace", "packed/lime", "-s", "0"], "packed/line"),
        (["trace", "packed/line", "-s", "0", "--root", "web"], "--root web: write SOURCE=FOLDER"),
        ([*LISTED, "nobody.txt"], "not a document of the corpus"),
        ([*LISTED, "long.txt"], "xxx'… is not a document of the corpus"),
        ([*LISTED, "none.txt"], "it lists no document"),
        ([*LISTED, "twin.txt", "--reason", "x" * 3000], "3,000 characters"),
        ([*LISTED, "missing.txt"], "missing.txt"),
    ],
    ids=range(11),
)
def test_wrong_usage(copied: Tokmill, arguments: list[str], message: str) -> None:
    for name, text in {
        "nobody": "web:nobody",
        "long": f"web:{'x' * 5_000_000}",
        "none": "",
        "twin": "web:twin",
    }.items():
        (copied.folder / f"{name}.txt").write_text(f"{text}\n")
    done = copied(*arguments)
    assert (done.code, message in done.err, len(done.err) < 1000) == (2, True, True), done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["packed/line"], "either --sequence N or --document SOURCE:ID"),
        (["packed/line", "-s", "1", "-d", "web:first"], "either --sequence N or --document SOURCE:ID"),
        (["packed/line", "-s", "9999"], "sequence 9999: packed/line@v1 has the sequences 0 to"),
        (["corpus/line", "-s", "0"], "corpus/line is not a packed artifact"),
        (["packed/lime", "-s", "0"], "packed/line"),
        (["packed/line", "-s", "0", "--root", "web"], "--root web: write SOURCE=FOLDER"),
    ],
)
def test_wrong_usage_of_trace(line, arguments: list[str], message: str) -> None:
    done = trace(line, *arguments)
    assert (done.code, message in done.err) == (2, True), done.err


def test_a_takedown_says_what_changed_and_where_the_documents_still_are(line, copied: Tokmill) -> None:
    before = RunResult("run", [], {"packed": line.packed, "mixture": line.made["mixture"]})
    assert superseded_lines(Store.open(copied.store), before) == []
    done = taken_down(copied, "web:twin", "web:tiny")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("web:tiny: in no sequence: it was dropped")
    assert lines[1].startswith("packed/line@v2 made: 2 documents taken out of ")
    assert [one.split()[1] for one in lines if one.startswith("web ")] == ["documents", "tokens"]
    hint = next(at for at, one in enumerate(lines) if "`tokmill store remove ARTIFACT`" in one)
    assert {"  packed/line@v1", "  mixture/line@v1"} <= set(lines[hint + 1 :])
    assert "  packed/line@v2" not in lines[hint + 1 :]
    assert ["data", "card", "card/line@v2"] in [one.split() for one in lines]
    read = next(int(words[2]) for words in map(str.split, lines) if words[:2] == ["web", "documents"])
    assert ("a document counts here as often as the mixture reads it" in done.out) == (read > 2)
    card = copied("show", "card/line@v2", "--read", **WIDE).out
    assert f" are left, {read} taken down" in card
    assert "Shares of the tokens before documents were taken down, measured in blocks" in card
    assert "packed/line@v1" in copied("lineage", "packed/line").out
    assert "taken down in packed/line@v2" in copied("trace", "packed/line", "-d", "web:twin", **WIDE).out
    (superseded,) = superseded_lines(Store.open(copied.store), before)  # at the end of that run, run again
    assert superseded.startswith("packed/line@v1 is superseded by packed/line@v2")


def test_the_old_version_is_superseded_can_be_removed_and_is_still_explained(copied: Tokmill) -> None:
    why = "case 17: asked for by the author"
    taken_down(copied, "web:twin", reason=f" {why} ")
    shown = copied("show", "packed/line@v1").out.splitlines()[1]
    assert shown == "superseded: documents were taken down in packed/line@v2"
    listed = copied("ls", "packed", "--all", "--json").document
    assert [row["superseded_by"] for row in listed] == [["packed/line@v2"], []]
    found = {row["artifact"]: row["why"] for row in copied("store", "gc", "--json").document["removed"]}
    assert found["packed/line@v1"] == "superseded by packed/line@v2"
    refused = copied("store", "remove", "packed/line@v1")
    assert (refused.code, "not removed: card/line@v1 was made from it" in refused.err) == (1, True)
    for name, *reason in (("card/line@v1", "--reason", "no longer true"), ("packed/line@v1",)):
        assert copied("store", "remove", name, *reason).code == 0
    checked = copied("store", "verify", "packed/line@v1")
    assert (checked.code, "packed/line@v1 was removed on " in checked.err) == (2, True)

    shown = copied("show", "packed/line@v1", **WIDE).out
    assert shown.splitlines()[1].startswith("removed on 20")
    assert why in " ".join(shown.split())
    told = [copied("show", f"{name}@v1", "--json").document for name in ("packed/line", "card/line")]
    reasons = [f"superseded by packed/line@v2: {why}", "no longer true"]
    assert [(each["removal"]["reason"], each["path"]) for each in told] == [(one, None) for one in reasons]
    assert copied("lineage", "packed/line@v1").out.startswith("packed/line@v1 (removed)")
    both = copied("compare", "--artifacts", "packed/line@v1", "packed/line@v2").out
    assert "packed/line@v2 differs from packed/line@v1" in both


def test_as_json_packed_again_nothing_to_do_and_damage(copied: Tokmill) -> None:
    nothing = taken_down(copied, "web:tiny")
    assert (nothing.code, "has none of the documents" in nothing.out.splitlines()[-1]) == (0, True)
    (copied.folder / "twin.txt").write_text("web:twin\n")
    first, second = (json.loads(copied(*LISTED, "twin.txt", "--json").out) for _ in range(2))
    assert (first["made"], second["made"], first["version"]) == (True, False, second["version"])
    assert first["version"]["metrics"]["num_taken_down_tokens"] > 0
    again = taken_down(copied, "essays:essay.txt", repack="")
    assert again.out.startswith("packed/line@v3 made: packed again without 1 document, "), again.err
    next(copied.store.glob("packed/*/__pieces__/pieces-00000.parquet")).unlink()
    traced = [copied("trace", f"packed/line@v{number}", "-s", "0") for number in (1, 2, 3)]
    assert [done.code for done in traced].count(1) == 1
    assert "pieces-00000.parquet" in "".join(done.err for done in traced)


PROFILE = """
name = "rows"
[sources.web]
files = ["web/*.jsonl"]
on_error = "quarantine"
[sources.news]
files = ["news.jsonl"]
[train]
vocab_size = 280
[encode]
min_tokens = 4
[pack]
sequence_length = 32
"""
QUARANTINED, DROPPED = 3, 5
FILES = (("web", "web/a.jsonl"), ("web", "web/b.jsonl"), ("news", "news.jsonl"))
SIDES = ("training", "validation")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    folder, generator = tmp_path_factory.mktemp("rows"), random.Random(3)
    (folder / "web").mkdir()
    (folder / "profile.toml").write_text(PROFILE)
    for name in ("web/a", "web/b", "news"):
        rows = [json.dumps({"text": words(generator, 8)}) for _ in range(12)]
        if name == "web/b":
            rows[QUARANTINED], rows[DROPPED] = '{"text": ', '{"text": "x"}'
        (folder / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    runs = InProcess.at(folder / "store")
    runs.run(folder / "profile.toml")
    runs.run(folder / "profile.toml", "holdout.share=0.3", "mix.seed=4")
    first = folder / "web" / "a.jsonl"
    first.write_text(first.read_text().split("\n", 2)[2])
    runs.run(folder / "profile.toml")
    return runs


@pytest.mark.slow
def test_as_many_sequences_are_told_as_tracing_finds_and_a_row_is_in_one_part(made: InProcess) -> None:
    """The rows of the first file are others in the last version, which alone has its digest."""
    listed = made.store.catalog.query(
        "SELECT label, name FROM artifacts WHERE kind = 'packed' ORDER BY name, label"
    )
    packings = [f"packed/{row['name']}@{row['label']}" for row in listed]
    assert packings == [f"packed/rows{version}" for version in ("@v1", "@v2", "@v3", ".validation@v1")]
    sides = set()
    for source, path, row in ((*each, row) for each in FILES for row in range(10)):
        name = Path(path).name
        asked = f"{made.store.root.parent / path}:{row}"
        found = {each.reference: each for each in impact_of(made.store, asked).artifacts}
        for reference in packings if name != "a.jsonl" else ["packed/rows@v3"]:
            origins = Origins.of(made.store, made.store.resolve(reference))
            (document,) = trace_document(origins, f"{source}:{name}:{row}")
            number, told = len({piece.sequence for piece in document.pieces}), found[reference]
            assert (told.holds == "contains", told.sequences or 0) == (number > 0, number), asked
        parts = (
            [side for side in SIDES if found[f"corpus/rows.{side}@v1"].holds == "contains"]
            if source == "news"
            else []
        )
        for side in parts:
            (other,) = {*SIDES} - {side}
            assert found[f"corpus/rows.{other}@v1"].why == f"it is in the {side} part"
            assert (found["encoded/rows.validation@v1"].holds == "contains") == (side == "validation")
            sides.add(side)
        if name == "b.jsonl" and row in (QUARANTINED, DROPPED):
            assert found["corpus/rows@v1"].why == ("quarantined: broken_json" if row == QUARANTINED else "")
            assert {each.kind for each in found.values() if each.holds == "contains"} <= {"corpus"}
    assert sides == {*SIDES}
