"""`tokmill trace` and `takedown`: output for people and as JSON, and errors for unknown names."""

import json
import shutil

import pytest

from tests.test_tasks.traced_line import traced_line
from tokmill.flows.cli.summaries import superseded_lines
from tokmill.flows.commands.main import main
from tokmill.flows.results import RunResult
from tokmill.tasks.store import Store
from tokmill.tasks.takedown.request import take_down
from tokmill.tasks.tracing import Origins


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    return traced_line(tmp_path_factory.mktemp("traced"))


@pytest.fixture
def tokmill(capsys, monkeypatch, line):
    """Run a command on the store; gives exit code, standard output and standard error."""
    monkeypatch.setenv("TOKMILL_STORE", str(line.store.root))
    monkeypatch.setenv("COLUMNS", "110")

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


class TestTrace:
    def test_a_sequence_for_people(self, tokmill):
        code, out, _ = tokmill("trace", "packed/line", "--sequence", 0)
        assert code == 0
        heading, _, columns, _, *rows = out.splitlines()
        assert heading.startswith("packed/line@v1, sequence 0: ")
        assert columns.split()[0] == "tokens"
        assert rows[0].split()[0].startswith("0–")

    def test_several_sequences(self, tokmill):
        alone = [tokmill("trace", "packed/line", "-s", number)[1] for number in (1, 0)]
        together = tokmill("trace", "packed/line", "-s", 1, "-s", 0)
        listed = json.loads(tokmill("trace", "packed/line", "-s", 1, "-s", 0, "--json")[1])

        assert together[:2] == (0, "\n".join(alone))
        assert [one["sequence"] for one in listed] == [1, 0]

    def test_a_document_for_people(self, tokmill):
        code, out, _ = tokmill("trace", "packed/line", "-d", "essays:essay.txt")
        assert code == 0
        assert out.startswith("essays:essay.txt: source essays, essay.txt\n")
        assert "pieces in" in out

    def test_a_document_without_a_sequence_says_why(self, tokmill):
        assert "in no sequence: it was dropped" in tokmill("trace", "packed/line", "-d", "web:tiny")[1]

    def test_json_goes_both_ways(self, tokmill):
        code, out, _ = tokmill("trace", "packed/line", "-s", 1, "--json")
        sequence = json.loads(out)
        assert code == 0
        assert sequence["packed"] == "packed/line@v1"
        for piece in sequence["pieces"]:
            documents = json.loads(tokmill("trace", "packed/line", "-d", piece["name"], "--json")[1])
            places = [(p["sequence"], p["start"]) for found in documents for p in found["pieces"]]
            assert (1, piece["start"]) in places

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["packed/line"], "either --sequence N or --document SOURCE:ID"),
            (["packed/line", "-s", "1", "-d", "web:first"], "either --sequence N or --document SOURCE:ID"),
            (["packed/line", "-s", "9999"], "sequence 9999: packed/line@v1 has the sequences 0 to"),
            (["packed/line", "-d", "web:nobody"], "'web:nobody' is not a document of the corpus"),
            (["corpus/line", "-s", "0"], "corpus/line is not a packed artifact"),
            (["packed/lime", "-s", "0"], "packed/line"),
            (["packed/line", "-s", "0", "--root", "web"], "--root web: write SOURCE=FOLDER"),
        ],
    )
    def test_wrong_usage(self, tokmill, arguments, message):
        code, _, err = tokmill("trace", *arguments)
        assert code == 2
        assert message in err

    def test_a_damaged_artifact(self, line, tokmill, tmp_path):
        (pieces,) = line.store.path(line.packed).glob("__pieces__/pieces-00000.parquet")
        kept = tmp_path / "kept"
        pieces.rename(kept)
        try:
            code, _, err = tokmill("trace", "packed/line", "-s", "0")
        finally:
            kept.rename(pieces)
        assert code == 1
        assert "pieces-00000.parquet" in err


@pytest.fixture
def copied(line, tmp_path, monkeypatch, tokmill):
    """A store that a test may add to, and a way to write lists."""
    shutil.copytree(line.store.root, tmp_path / "store")
    monkeypatch.setenv("TOKMILL_STORE", str(tmp_path / "store"))

    def listed(*names):
        path = tmp_path / "list.txt"
        path.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        return path

    return listed


class TestTakedown:
    def test_for_people_it_says_what_changed(self, tokmill, copied):
        code, out, err = tokmill(
            "data", "takedown", "packed/line", "--documents", copied("web:twin", "web:tiny")
        )
        assert code == 0, err
        lines = out.splitlines()
        assert lines[0].startswith("web:tiny: in no sequence: it was dropped")
        assert lines[1].startswith("packed/line@v2 made: 2 documents taken out of ")
        assert [line.split()[:2] for line in lines if line.startswith("web ")] == [
            ["web", "documents"],
            ["web", "tokens"],
        ]
        still = lines[
            1 + next(at for at, line in enumerate(lines) if "`tokmill store remove ARTIFACT`" in line) :
        ]
        assert {"  packed/line@v1", "  mixture/line@v1"} <= set(still)
        assert "  packed/line@v2" not in still
        assert any(line.split() == ["data", "card", "card/line@v2"] for line in lines)
        read = next(int(words[2]) for words in map(str.split, lines) if words[:2] == ["web", "documents"])
        assert ("a document counts here as often as the mixture reads it" in out) == (read > 2)
        card = tokmill("show", "card/line@v2", "--read")[1]
        assert f" are left, {read} taken down" in card
        assert "Shares of the tokens before documents were taken down, measured in blocks" in card
        assert "packed/line@v2" in tokmill("ls", "packed")[1]
        assert "packed/line@v1" in tokmill("lineage", "packed/line")[1]
        assert "it was taken down in packed/line@v2" in tokmill("trace", "packed/line", "-d", "web:twin")[1]

    def test_the_old_version_is_superseded_and_can_be_removed(self, tokmill, copied, tmp_path):
        tokmill("data", "takedown", "packed/line", "--documents", copied("web:twin"))
        shown = tokmill("show", "packed/line@v1")[1].splitlines()[1]
        assert shown == "superseded: documents were taken down in packed/line@v2"
        listed = json.loads(tokmill("ls", "packed", "--all", "--json")[1])
        assert [row["superseded_by"] for row in listed] == [["packed/line@v2"], []]
        found = json.loads(tokmill("store", "gc", "--json")[1])
        assert {row["artifact"]: row["why"] for row in found["removed"]}["packed/line@v1"] == (
            "superseded by packed/line@v2"
        )
        code, _, err = tokmill("store", "remove", "packed/line@v1")
        assert code == 1
        assert "packed/line@v1 is not removed: card/line@v1 was made from it" in err
        assert tokmill("store", "remove", "packed/line@v1", "--with-dependents", "--apply")[0] == 0
        code, _, err = tokmill("store", "verify", "packed/line@v1")
        assert code == 2
        assert "packed/line@v1 was removed on " in err
        assert tokmill("store", "verify")[0] == 0

    def test_a_removed_version_is_shown_compared_and_followed(self, tokmill, copied):
        why = "case 17: asked for by the author"
        tokmill("data", "takedown", "packed/line", "--documents", copied("web:twin"), "--reason", f" {why} ")
        tokmill("store", "remove", "card/line@v1", "--reason", "no longer true")
        tokmill("store", "remove", "packed/line@v1")
        shown = tokmill("show", "packed/line@v1")[1]
        assert shown.splitlines()[1].startswith("removed on 20")
        assert why in " ".join(shown.split())
        assert "memmap" in shown
        told = json.loads(tokmill("show", "packed/line@v1", "--json")[1])
        assert told["removal"]["reason"] == f"superseded by packed/line@v2: {why}"
        assert told["path"] is None
        assert (
            json.loads(tokmill("show", "card/line@v1", "--json")[1])["removal"]["reason"] == "no longer true"
        )
        assert json.loads(tokmill("show", "packed/line@v2", "--json")[1])["removal"] is None
        assert tokmill("lineage", "packed/line@v1")[1].startswith("packed/line@v1 (removed)")
        assert (
            "packed/line@v2 differs from packed/line@v1"
            in tokmill("compare", "--artifacts", "packed/line@v1", "packed/line@v2")[1]
        )
        code, _, err = tokmill(
            "data", "takedown", "packed/line", "-d", copied("web:twin"), "--reason", "x" * 3000
        )
        assert code == 2
        assert "3,000 characters" in err

    def test_a_run_whose_result_is_superseded_says_so(self, line, copied, tmp_path):
        store = Store.open(shutil.copytree(line.store.root, tmp_path / "another"))
        result = RunResult("run", [], {"packed": line.packed, "mixture": line.made["mixture"]})
        assert superseded_lines(store, result) == []
        take_down(Origins.of(store, line.packed), ["web:twin"])
        (line_of_packed,) = superseded_lines(store, result)
        assert line_of_packed.startswith("packed/line@v1 is superseded by packed/line@v2")

    def test_as_json(self, tokmill, copied):
        documents = copied("web:twin")
        first, second = (
            json.loads(tokmill("data", "takedown", "packed/line@v1", "-d", documents, "--json")[1])
            for _ in range(2)
        )
        assert (first["made"], second["made"]) == (True, False)
        assert first["version"] == second["version"]
        assert first["version"]["reference"] == "packed/line@v2"
        assert first["version"]["metrics"]["num_taken_down_tokens"] > 0

    def test_packed_again(self, tokmill, copied):
        code, out, err = tokmill(
            "data", "takedown", "packed/line", "-d", copied("essays:essay.txt"), "--repack"
        )
        assert code == 0, err
        assert out.startswith("packed/line@v2 made: packed again without 1 document, ")
        assert "essays   documents" in out

    def test_nothing_to_do_is_no_failure(self, tokmill, copied):
        code, out, _ = tokmill("data", "takedown", "packed/line", "-d", copied("web:tiny"))
        assert code == 0
        assert "packed/line@v1 has none of the documents" in out.splitlines()[-1]

    def test_wrong_usage(self, tokmill, copied):
        for names, message in (
            (["web:nobody"], "not a document of the corpus"),
            ([f"web:{'x' * 5_000_000}"], "xxx'… is not a document of the corpus"),
            ([], "it lists no document"),
        ):
            code, _, err = tokmill("data", "takedown", "packed/line", "-d", copied(*names))
            assert code == 2
            assert message in err
            assert len(err) < 1000
        assert tokmill("data", "takedown", "packed/line", "-d", "missing.txt")[0] == 2
