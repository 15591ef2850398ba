"""The commands that look at a store, on the smoke profile's artifacts."""

import csv
import io
import json
import shutil
import subprocess

import pyarrow.parquet as pq
import pytest

from tests.test_flows.in_process import InProcess
from tests.test_tasks.store_stages import ask
from tokmill.flows.commands.main import main
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.store import Provenance, Store, read_record
from tokmill.tasks.store.runs import Begun


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with two packings of the smoke profile; not to be changed."""
    store = Store.open(tmp_path_factory.mktemp("smoke") / "store")
    InProcess(store).run("smoke")
    InProcess(store).run("smoke", "pack.sequence_length=64")
    return store


@pytest.fixture
def tokmill(capsys, monkeypatch, made):
    """Run a command on the store; gives exit code, standard output and standard error."""
    monkeypatch.setenv("TOKMILL_STORE", str(made.root))
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def copied(made, tmp_path, monkeypatch):
    """A copy of the store that a test may change."""
    shutil.copytree(made.root, tmp_path / "store")
    monkeypatch.setenv("TOKMILL_STORE", str(tmp_path / "store"))
    return Store.open(tmp_path / "store")


class TestPlan:
    def test_what_is_there_is_cached(self, tokmill):
        code, out, _ = tokmill("plan", "smoke", "--json")
        document = json.loads(out)
        assert code == 0
        assert document["num_to_run"] == 0
        assert {task["action"] for task in document["tasks"]} == {"cached"}

    def test_for_people_it_says_so(self, tokmill):
        _, out, _ = tokmill("plan", "smoke")
        assert "everything is up to date" in out

    def test_a_change_names_the_field_and_what_waits(self, tokmill):
        _, out, _ = tokmill("plan", "smoke", "--set", "pack.sequence_length=32")
        assert "params.sequence_length: 64 → 32" in out
        assert "1 would run, and so may 3 or more that wait for it" in out  # how many shards is not known
        assert all(len(line) <= 100 for line in out.splitlines()[:-1])

    def test_shards_are_one_line(self, tokmill):
        _, out, _ = tokmill("plan", "smoke")
        line = next(line for line in out.splitlines() if line.startswith("encode[*]"))
        assert line.split() == ["encode[*]", "3", "shards", "cached"]


class TestLs:
    def test_the_latest_of_each_without_shards(self, tokmill):
        code, out, err = tokmill("ls")
        assert code == 0
        assert "packed/smoke@v2" in out
        assert "packed/smoke@v1" not in out
        assert "_shard/" not in out
        assert "--all" in err

    def test_all_versions_of_a_kind(self, tokmill):
        _, out, _ = tokmill("ls", "packed", "--all")
        assert "packed/smoke@v1" in out
        assert "packed/smoke@v2" in out

    def test_a_kind_of_shards_by_its_name(self, tokmill):
        _, out, _ = tokmill("ls", "encoded_shard")
        assert "encoded_shard/smoke.latin/0@v1" in out

    def test_json_has_one_row_a_version(self, tokmill):
        _, out, _ = tokmill("ls", "packed", "--all", "--json")
        assert [row["label"] for row in json.loads(out)] == ["v1", "v2"]

    def test_an_unknown_kind_names_the_nearest(self, tokmill):
        code, _, err = tokmill("ls", "tokeniser")
        assert code == 2
        assert "did you mean tokenizer?" in err


class TestShow:
    def test_a_sheet_has_figures_parameters_inputs_accounts_and_files(self, tokmill):
        code, out, _ = tokmill("show", "encoded/smoke")
        assert code == 0
        assert out.startswith("encoded/smoke@v1\n")
        for heading in ("figures", "parameters", "inputs", "accounts", "files"):
            assert f"\n{heading}\n" in out

    def test_json_is_the_record(self, tokmill, made):
        _, out, _ = tokmill("show", "tokenizer/smoke", "--json")
        document = json.loads(out)
        assert document["fingerprint"] == made.resolve("tokenizer/smoke").fingerprint
        assert document["params"]["vocab_size"] == 1000

    def test_a_prefix_of_the_fingerprint_calls_it_as_well(self, tokmill, made):
        prefix = made.resolve("tokenizer/smoke").fingerprint[:10]
        assert tokmill("show", prefix)[1].startswith("tokenizer/smoke@v1")
        assert tokmill("show", f"tokenizer/{prefix}")[1].startswith("tokenizer/smoke@v1")
        assert "no corpus in" in tokmill("show", f"corpus/{prefix}")[2]

    def test_the_run_that_made_it_is_named_with_its_page(self, tokmill, tmp_path):
        store = Store.open(tmp_path / "store")
        url = "http://127.0.0.1:4200/runs/flow-run/0a1b"
        store.catalog.add_run("run-1", begun=Begun(name="nightly", profile="p", url=url))
        store.realize(ask("known"), Provenance.collect(run_id="run-1"))
        store.realize(ask("unknown", text="u"), Provenance.collect(run_id="run-2"))
        lines = {
            line.strip() for line in tokmill("show", "text/known", "--store", store.root)[1].splitlines()
        }
        assert {"run-1 (nightly)", url} <= {line.partition(" ")[2].strip() for line in lines}
        assert (
            json.loads(tokmill("show", "text/known", "--store", store.root, "--json")[1])["run_page"] == url
        )
        out = tokmill("show", "text/unknown", "--store", store.root)[1]
        assert "run-2" in out
        assert "http" not in out

    def test_words_are_markdown_outside_of_a_terminal(self, tokmill):
        code, out, _ = tokmill("show", "card/smoke", "--read")
        assert code == 0
        assert out.startswith("---\nlicense: ")  # what a hub reads
        assert "\n# Training data\n" in out

    def test_an_artifact_without_words(self, tokmill):
        assert tokmill("show", "mixture/smoke", "--read")[0] == 2

    def test_an_unknown_artifact_names_the_nearest(self, tokmill):
        code, _, err = tokmill("show", "packt/smoke")
        assert code == 2
        assert "packed/smoke" in err


class TestLineage:
    def test_up_is_the_default_and_ends_at_the_files(self, tokmill):
        _, out, _ = tokmill("lineage", "packed/smoke")
        assert out.startswith("packed/smoke@v2\n")
        assert "corpus/smoke@v1" in out
        assert "files" in out

    def test_down_ends_at_the_card(self, tokmill):
        _, out, _ = tokmill("lineage", "corpus/smoke", "--down")
        assert "card/smoke" in out

    def test_mermaid_and_json(self, tokmill):
        assert tokmill("lineage", "packed/smoke", "--format", "mermaid")[1].startswith("flowchart")
        graph = json.loads(tokmill("lineage", "packed/smoke", "--up", "--down", "--format", "json")[1])
        assert graph["direction"] == "both"
        assert tokmill("lineage", "packed/smoke", "--format", "graphviz")[1].startswith("digraph")

    def test_a_page_goes_both_ways_and_replaces_no_file(self, tokmill, tmp_path):
        page = tmp_path / "lineage.html"
        code, out, _ = tokmill("lineage", "counts/smoke", "--html", page)
        assert code == 0
        assert out.startswith(f"{page} shows ")
        for shown in ("corpus/smoke@v1", "card/smoke@v2"):
            assert f">{shown}<" in page.read_text("utf-8")
        code, _, err = tokmill("lineage", "counts/smoke", "--up", "--html", page)
        assert code == 2
        assert "name a new file" in err
        tokmill("lineage", "counts/smoke", "--up", "--html", tmp_path / "up.html")
        assert "card/smoke" not in (tmp_path / "up.html").read_text("utf-8")

    def test_it_can_be_asked_for_in_sql(self, tokmill):
        question = (
            "SELECT DISTINCT user_kind FROM lineage_down WHERE artifact = 'counts/smoke@v1' AND depth = 1"
        )
        answer = json.loads(tokmill("sql", question, "--json")[1])
        assert {"user_kind": "tokenizer"} in answer


class TestDiff:
    def test_only_what_bears_identity_differs(self, tokmill):
        _, out, _ = tokmill("compare", "--artifacts", "pack_plan/smoke@v1", "pack_plan/smoke@v2", "--fields")
        assert "pack_plan.sequence_length 128 → 64" in out
        assert "params.sequence_length\n  a  128\n  b  64" in out

    def test_json(self, tokmill):
        _, out, _ = tokmill("compare", "--artifacts", "pack_plan/smoke@v1", "pack_plan/smoke@v2", "--json")
        document = json.loads(out)
        assert document["fields"] == [{"field": "params.sequence_length", "a": 128, "b": 64}]
        assert [cause["field"] for cause in document["causes"]] == ["pack_plan.sequence_length"]

    def test_the_same(self, tokmill):
        assert "have the same content" in tokmill("compare", "--artifacts", "corpus/smoke", "corpus/smoke")[1]


class TestVerify:
    def test_a_sound_store(self, tokmill):
        code, out, _ = tokmill("store", "verify")
        assert code == 0
        assert out.endswith("no problems\n")

    def test_damage_is_named_and_fails(self, tokmill, copied):
        damaged = copied.path(copied.resolve("tokenizer/smoke")) / "tokmill.json"
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
        code, out, _ = tokmill("store", "verify", "tokenizer/smoke")
        assert code == 1
        assert "tokenizer/smoke@v1: tokmill.json" in out
        assert tokmill("store", "verify", "tokenizer/smoke", "--sizes")[0] == 0
        assert json.loads(tokmill("store", "verify", "--json")[1])["problems"][0]["path"] == "tokmill.json"


class TestTag:
    def test_an_alias_calls_the_artifact(self, tokmill, copied):
        code, out, _ = tokmill("store", "tag", "packed/smoke@v1", "prod")
        assert (code, out) == (0, "packed/smoke@prod is now packed/smoke@v1\n")
        assert tokmill("show", "packed/smoke@prod")[1].startswith("packed/smoke@v1")
        assert "@prod" in tokmill("ls", "packed", "--all")[1]

    def test_a_label_is_no_alias(self, tokmill, copied):
        assert tokmill("store", "tag", "packed/smoke@v1", "v7")[0] != 0


class TestExport:
    def test_the_sequences_are_there_in_the_other_format(self, tokmill, copied, tmp_path):
        code, out, _ = tokmill(
            "data", "export", "packed/smoke@v1", "--format", "megatron", "--out", tmp_path / "data", "--json"
        )
        document = json.loads(out)
        assert (code, document["artifact"]) == (0, "packed/smoke.megatron@v1")
        before = PackedReader.open(copied.path(copied.resolve("packed/smoke@v1")))
        after = PackedReader.open(tmp_path / "data")
        assert len(after) == len(before) == document["metrics"]["num_sequences"]
        assert [sequence.input_ids.tolist() for sequence in after] == [
            sequence.input_ids.tolist() for sequence in before
        ]
        done = ["b2sum", "--length=256", "--check", "--quiet", "checksums.txt"]
        assert subprocess.run(done, cwd=tmp_path / "data", check=False).returncode == 0

    def test_its_lineage_leads_to_the_text(self, tokmill, copied):
        tokmill("data", "export", "packed/smoke@v1", "-f", "npy", "-f", "jsonl")
        code, out, _ = tokmill("lineage", "packed/smoke.jsonl+npy")
        assert code == 0
        assert "packed/smoke@v1" in out
        assert "corpus/smoke@v1" in out

    def test_exporting_twice_makes_nothing(self, tokmill, copied):
        outs = [tokmill("data", "export", "packed/smoke", "-f", "npy")[1] for _ in range(2)]
        assert outs[0] == outs[1]
        assert len(list((copied.root / "packed").iterdir())) == 3

    def test_a_damaged_artifact_is_refused(self, tokmill, copied):
        file = next(copied.path(copied.resolve("packed/smoke@v1")).glob("*.bin"))
        data = bytearray(file.read_bytes())
        data[0] ^= 1
        file.write_bytes(data)
        code, out, err = tokmill("data", "export", "packed/smoke@v1", "-f", "npy")
        assert (code, out) == (1, "")
        assert "shard-00000.bin: has digest" in err
        assert len(list((copied.root / "packed").iterdir())) == 2

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("packed/smoke", "-f", "arow"), "--format arow is not known; did you mean arrow?"),
            (("mixture/smoke", "-f", "npy"), "is of kind mixture, not packed"),
            (("packed/smoke", "-f", "npy", "--out", "."), "exists; name a new folder"),
        ],
    )
    def test_wrong_usage_is_said(self, tokmill, arguments, problem):
        code, out, err = tokmill("data", "export", *arguments)
        assert (code, out) == (2, "")
        assert problem in err


def test_the_catalog_can_be_deleted_and_made_again(tokmill, copied):
    before = tokmill("ls", "--all", "--json")[1]
    copied.catalog.path.unlink()
    code, out, _ = tokmill("store", "rebuild", "--json")
    assert code == 0
    assert json.loads(out)["artifacts"] > 10
    assert tokmill("ls", "--all", "--json")[1] == before


class TestText:
    def test_ids_come_back_as_the_text(self, tokmill):
        code, ids, _ = tokmill("encode", "-t", "smoke", "Guten Morgen, 世界")
        assert code == 0
        assert tokmill("decode", "-t", "smoke", *ids.split())[1] == "Guten Morgen, 世界\n"

    def test_each_argument_is_a_document(self, tokmill):
        _, out, _ = tokmill("encode", "-t", "tokenizer/smoke@v1", "one", "two")
        assert len(out.splitlines()) == 2

    def test_lines_of_a_file_are_documents_and_stay_lines(self, tokmill, tmp_path):
        text = "one line\n\nanother, with \ttabs \n"
        (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbf" + text.encode().replace(b"\n", b"\r\n"))
        ids = tokmill("encode", "-t", "smoke", "--file", tmp_path / "text.txt")[1]
        (tmp_path / "ids.txt").write_text(ids)
        assert tokmill("decode", "-t", "smoke", "--file", tmp_path / "ids.txt")[1] == text

    def test_a_whole_file_is_one_document(self, tokmill, tmp_path):
        (tmp_path / "text.txt").write_text("one\ntwo\n")
        out = tokmill("encode", "-t", "smoke", "--whole", "--file", tmp_path / "text.txt")[1]
        assert tokmill("decode", "-t", "smoke", *out.split())[1] == "one\ntwo\n\n"

    def test_json_is_one_object_a_document_and_decodes(self, tokmill, tmp_path):
        out = tokmill("encode", "-t", "smoke", "--json", "one", "two")[1]
        entries = [json.loads(line) for line in out.splitlines()]
        assert [entry["num_tokens"] for entry in entries] == [len(entry["ids"]) for entry in entries]
        assert "".join(entries[0]["tokens"]) == "one"
        (tmp_path / "ids.jsonl").write_text(out)
        decoded = tokmill("decode", "-t", "smoke", "--json", "--file", tmp_path / "ids.jsonl")[1]
        assert [json.loads(line)["text"] for line in decoded.splitlines()] == ["one", "two"]

    def test_a_special_token_is_an_error_unless_it_is_meant(self, tokmill):
        text = "a<|endoftext|>b"
        code, _, err = tokmill("encode", "-t", "smoke", text)
        assert code == 1
        assert "document 1 holds the special token '<|endoftext|>'" in err
        assert "--special-tokens allowed" in err
        allowed = tokmill("encode", "-t", "smoke", "--special-tokens", "allowed", text)[1].split()
        as_text = tokmill("encode", "-t", "smoke", "--special-tokens", "as_text", text)[1].split()
        assert len(allowed) == 3 < len(as_text)

    def test_a_tokenizer_from_a_file(self, tokmill, made):
        folder = made.path(made.resolve("tokenizer/smoke"))
        exported = tokmill("encode", "-t", folder / "exports/huggingface/tokenizer.json", "one")[1]
        assert exported == tokmill("encode", "-t", "smoke", "one")[1]

    @pytest.mark.parametrize(
        ("reference", "text"),
        [("smokk", "tokenizer/smoke"), ("corpus/smoke", "not tokenizer")],
    )
    def test_what_is_no_tokenizer(self, tokmill, reference, text):
        code, _, err = tokmill("encode", "-t", reference, "x")
        assert code == 2
        assert text in err

    @pytest.mark.parametrize(
        "line", ["one two", "[1, 2", "{}", '{"ids": "12"}', '{"ids": {}}', "[1.5]", "[true]", "[" * 9999]
    )
    def test_what_is_no_list_of_ids_says_the_line(self, tokmill, tmp_path, line):
        (tmp_path / "ids.txt").write_text(f"1 2\n{line}\n")
        code, _, err = tokmill("decode", "-t", "smoke", "--file", tmp_path / "ids.txt")
        assert code == 2
        assert f"line 2: '{line[:60]}' is not a list of token ids" in err

    def test_an_id_beyond_the_vocabulary(self, tokmill):
        code, _, err = tokmill("decode", "-t", "smoke", "99999")
        assert code == 1
        assert "99999" in err

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (("encode", "--file", "bad.txt"), "encode: line 2 is not UTF-8 at byte 3"),
            (("encode", "--whole", "--file", "bad.txt"), "encode: the input is not UTF-8 at byte 5"),
            (("encode", "one", "caf\udce9"), "the argument 'caf\\udce9' is not UTF-8 text"),
            (("decode", "--file", "bad.txt"), "decode: line 1: 'a' is not a list"),
            (("decode", "--file", "ids.txt"), "decode: line 2 is not UTF-8 at byte 0"),
        ],
    )
    def test_input_that_is_not_utf8(self, tokmill, tmp_path, monkeypatch, arguments, says):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "bad.txt").write_bytes(b"a\ncaf\xe9\n")
        (tmp_path / "ids.txt").write_bytes(b"1\n\xe9\n")
        code, _, err = tokmill(*arguments, "-t", "smoke")
        assert code == 2
        assert says in err

    @pytest.mark.parametrize("whole", [(), ("--whole",)])
    def test_input_without_an_end_is_refused(self, tokmill, monkeypatch, whole):
        monkeypatch.setattr("tokmill.flows.commands.text._MOST_BYTES", 1000)
        code, _, err = tokmill("encode", "-t", "smoke", *whole, "--file", "/dev/zero")
        assert (code, "has more than 1,000 bytes" in err) == (2, True)

    def test_texts_and_a_file_exclude_each_other(self, tokmill, tmp_path):
        assert tokmill("encode", "-t", "smoke", "--file", tmp_path / "x", "text")[0] == 2


class TestRemove:
    def test_all_that_would_go_is_listed_first_and_stays(self, tokmill, copied):
        before = sorted(copied.layout.artifacts())
        code, out, err = tokmill("store", "remove", "tokenizer/smoke", "--with-dependents")
        assert code == 0
        assert "--apply" in err
        listed = [line.split() for line in out.splitlines() if "@v" in line]
        assert listed[-1][0] == "tokenizer/smoke@v1"
        kinds = {name.partition("/")[0] for name, *_ in listed}
        assert {"card", "packed", "packed_shard", "encoded_shard", "audit"} <= kinds
        assert not {"corpus", "counts", "balance"} & kinds
        assert sorted(copied.layout.artifacts()) == before
        assert tokmill("store", "verify", "--sizes")[0] == 0

    def test_what_was_listed_goes_at_once(self, tokmill, copied):
        asked = ("store", "remove", "tokenizer/smoke", "--with-dependents", "--json")
        listed = json.loads(tokmill(*asked)[1])
        sizes = {record.reference: record.num_bytes for record in map(read_record, copied.layout.artifacts())}
        code, out, _ = tokmill(*asked, "--apply")
        gone = json.loads(out)
        assert code == 0
        assert (listed["applied"], gone["applied"]) == (False, True)
        assert listed["removed"] == gone["removed"]
        assert {row["artifact"]: row["num_bytes"] for row in gone["removed"]}.items() <= sizes.items()
        assert gone["num_bytes"] == sum(row["num_bytes"] for row in gone["removed"])
        left = {record.reference for record in map(read_record, copied.layout.artifacts())}
        assert left == sizes.keys() - {row["artifact"] for row in gone["removed"]}

    def test_one_that_nothing_was_made_from_goes_as_named(self, tokmill, copied):
        code, out, _ = tokmill("store", "remove", "card/smoke@v1")
        assert code == 0
        (line,) = [line for line in out.splitlines() if "@v" in line]
        assert line.split()[:2] == ["card/smoke@v1", "2"]
        assert out.splitlines()[-1].startswith(f"{copied.root}: 1 artifact removed, ")

    @pytest.mark.parametrize("how", [(), ("--apply",)])
    def test_what_a_run_holds_is_neither_listed_nor_removed(self, tokmill, copied, how):
        held = copied.resolve("packed/smoke@v1")
        with copied.at_work("a test") as lease:
            lease.hold([held.fingerprint])
            code, out, err = tokmill("store", "remove", "mixture/smoke", "--with-dependents", *how)
        assert (code, out) == (1, "")
        assert "packed/smoke@v1 is not removed" in err
        assert copied.holds(held)


class TestGc:
    @pytest.mark.parametrize("width", [60, 80, 120])
    @pytest.mark.parametrize("each", [(), ("--each",)])
    def test_every_reason_has_its_days_and_fits_the_terminal(self, tokmill, copied, monkeypatch, width, each):
        monkeypatch.setenv("COLUMNS", str(width))
        copied.tag(copied.resolve("tokenizer/smoke"), "prod")
        code, out, _ = tokmill("store", "gc", "--older-than", "14", *each)
        assert code == 0
        lines = out.splitlines()[:-1]  # the last one has the store's path
        assert max(map(len, lines)) <= width
        words = " ".join(" ".join(lines).split())
        assert "alias" in words
        assert "14" in words
        assert all(line == line.rstrip() for line in lines)
        assert "…" not in "".join(line[-20:] for line in lines)

    def test_the_table_says_why_in_one_column(self, tokmill, copied):
        held = copied.resolve("packed/smoke@v1")
        copied.tag(copied.resolve("tokenizer/smoke"), "prod")
        with copied.at_work("a test") as lease:
            lease.hold([held.fingerprint])
            _, out, err = tokmill("store", "gc", "--older-than", "0", "--keep", "0")
        rows = {line.split()[0]: line for line in out.splitlines() if line and line[0].isalpha()}
        assert rows["would"].split()[-4:] == ["number", "size", "age", "why"]
        assert rows["card"].endswith("unused")
        assert rows["alias"].endswith("has an alias")
        assert rows["running"].endswith("needed by running work")
        assert rows["input"].endswith("what stays was made from it")
        assert "unused: no alias" in err

    def test_each_artifact_has_its_reason_and_age_in_json(self, tokmill, copied):
        held = copied.resolve("packed/smoke@v1")
        copied.tag(copied.resolve("tokenizer/smoke"), "prod")
        asked = ("store", "gc", "--older-than", "0", "--keep", "0", "--json")
        with copied.at_work("a test") as lease:
            lease.hold([held.fingerprint])
            found = json.loads(tokmill(*asked, "--each")[1])
        listed = {row["artifact"]: row for row in [*found["removed"], *found["kept_artifacts"]]}
        assert len(listed) == len(list(copied.layout.artifacts()))
        assert {row["why"] for row in found["removed"]} == {"unused"}
        assert listed["tokenizer/smoke@v1"]["why"] == "alias tokenizer/smoke@prod"
        assert listed["packed/smoke@v1"]["reason"] == "running"
        assert listed["packed/smoke@v1"]["why"].startswith("needed by a test")
        assert listed["corpus/smoke@v1"]["reason"] == "input"
        assert all(0 <= row["age_days"] < 1 for row in listed.values())
        assert sum(group["number"] for group in found["kept"].values()) == len(found["kept_artifacts"])
        assert "kept_artifacts" not in json.loads(tokmill(*asked)[1])

    def test_what_is_young_says_how_young(self, tokmill):
        found = json.loads(tokmill("store", "gc", "--older-than", "1", "--json", "--each")[1])
        assert found["removed"] == []
        assert found["kept"]["recent"]["why"] == "made, or used by a run, in the last 1 day"
        assert {row["why"].partition(" ago, ")[2] for row in found["kept_artifacts"]} == {"in the last 1 day"}


class TestSql:
    def test_a_table(self, tokmill):
        query = "FROM artifacts SELECT kind, count(*) AS number WHERE kind = 'packed' GROUP BY kind"
        code, out, _ = tokmill("sql", query)
        assert code == 0
        assert [line.split() for line in out.splitlines()[::2]] == [["kind", "number"], ["packed", "2"]]

    def test_json_and_csv_have_every_row_and_value(self, tokmill, made):
        query = (
            "FROM usage_tokens SELECT token_id, token, num_occurrences, NULL AS none, 'nan'::DOUBLE AS nan"
        )
        rows = json.loads(tokmill("sql", query, "--json")[1])
        written = list(csv.DictReader(io.StringIO(tokmill("sql", query, "--csv")[1])))
        (usage,) = {path.parent for path in made.root.glob("usage/*/record.json")}
        expected = pq.read_table(usage / "catalog" / "usage_tokens.parquet").to_pylist()
        assert len(rows) == len(written) == len(expected) == 1000
        for row, line, one in zip(rows, written, expected, strict=True):
            assert row["num_occurrences"] == int(line["num_occurrences"]) == one["num_occurrences"]
            assert row["token"] == line["token"] == one["token"].decode("utf-8", "backslashreplace")
            assert (row["none"], row["nan"], line["none"]) == (None, None, "")

    def test_a_repeated_name_is_kept(self, tokmill):
        (row,) = json.loads(tokmill("sql", "SELECT 1 AS a, 2 AS a, [1, {'b': 2}.b] AS c", "--json")[1])
        assert row == {"a": 1, "a_2": 2, "c": [1, 2]}
        (row,) = json.loads(tokmill("sql", "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a", "--json")[1])
        assert row == {"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}

    def test_a_heading_is_no_markup(self, tokmill):
        assert tokmill("sql", 'SELECT 1 AS "[b]"')[1].startswith("[b]\n")

    def test_long_tables_are_cut(self, tokmill):
        code, out, err = tokmill("sql", "FROM usage_tokens SELECT token_id", "--limit", 7)
        assert code == 0
        assert len(out.splitlines()) == 2 + 7
        assert "993 more rows" in err

    def test_a_file_and_standard_input(self, tokmill, tmp_path, monkeypatch):
        (tmp_path / "one.sql").write_text("SELECT 41 + 1 AS answer -- a comment", "utf-8")
        assert "42" in tokmill("sql", "--file", tmp_path / "one.sql")[1]
        monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 43 AS answer;"))
        assert "43" in tokmill("sql", "-")[1]

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ("DELETE FROM artifacts", "DELETE is refused"),
            ("COPY (SELECT 1) TO 'stolen.csv'", "COPY is refused"),
            ("ATTACH 'x.duckdb'", "ATTACH is refused"),
            ("CREATE TABLE a AS SELECT 1", "CREATE is refused"),
            ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'stolen.csv'", "EXPLAIN is refused"),
            ("SELECT 1; SELECT 2", "2 statements were given"),
            ("", "0 statements were given"),
            ("SELEC 1", "syntax error"),
            (f"SELECT {'(' * 100_000}", "brackets 200 deep"),
            ("FROM nothing", "Table with name nothing does not exist"),
            ("SELECT 'a'::INTEGER", "rejects the query"),
        ],
    )
    def test_what_is_no_question_is_refused(self, tokmill, query, message, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        code, out, err = tokmill("sql", query)
        assert (code, out) == (1, "")
        assert message in err
        assert list(tmp_path.iterdir()) == []

    def test_wrong_usage(self, tokmill, tmp_path):
        assert tokmill("sql")[0] == 2
        assert tokmill("sql", "SELECT 1", "--file", "x.sql")[0] == 2
        assert tokmill("sql", "--file", tmp_path / "missing.sql")[0] == 2
        assert "is a device" in tokmill("sql", "--file", "/dev/zero")[2]
        assert tokmill("sql", "SELECT 1", "--csv", "--json")[0] == 2
        code, _, err = tokmill("sql", "SELECT '\udcff'")
        assert (code, "is not UTF-8" in err) == (2, True)
