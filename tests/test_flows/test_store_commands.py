"""Commands that look at a store, change it, or turn text into tokens, on the smoke profile's artifacts."""

import csv
import io
import json
import subprocess

import pyarrow.parquet as pq
import pytest

from tests.test_flows.commands import Tokmill
from tests.test_tasks.store_stages import ask
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.store import Provenance, Store, read_record
from tokmill.tasks.store.runs import Begun

WIDE = {"COLUMNS": "100"}


def test_a_plan_names_what_is_cached_what_differs_and_what_waits(smoke: Tokmill) -> None:
    document = smoke("plan", "smoke", "--json").document
    assert (document["num_to_run"], {task["action"] for task in document["tasks"]}) == (0, {"cached"})
    shown = smoke("plan", "smoke", **WIDE).out
    assert "everything is up to date" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("encode[*]")]
    assert line.split() == ["encode[*]", "3", "shards", "cached"]
    changed = smoke("plan", "smoke", "--set", "pack.sequence_length=32", **WIDE).out
    assert "params.sequence_length: 64 → 32" in changed
    assert "1 would run, and so may 3 or more that wait for it" in changed  # how many shards is not known
    assert all(len(line) <= 100 for line in changed.splitlines()[:-1])


def test_a_list_has_the_latest_of_each_without_shards_or_all(smoke: Tokmill) -> None:
    latest, every = smoke("ls", **WIDE), smoke("ls", "packed", "--all", **WIDE).out
    assert "packed/smoke@v2" in latest.out
    assert not any(name in latest.out for name in ("packed/smoke@v1", "_shard/"))
    assert "--all" in latest.err
    assert all(f"packed/smoke@v{number}" in every for number in (1, 2))
    assert "encoded_shard/smoke.latin/0@v1" in smoke("ls", "encoded_shard", **WIDE).out
    assert [row["label"] for row in smoke("ls", "packed", "--all", "--json").document] == ["v1", "v2"]


def test_an_artifact_is_shown_by_every_name_as_sheet_record_or_words(smoke: Tokmill) -> None:
    fingerprint = Store.open(smoke.store).resolve("tokenizer/smoke").fingerprint
    sheet = smoke("show", "encoded/smoke", **WIDE).out
    assert sheet.startswith("encoded/smoke@v1\n")
    for heading in ("figures", "parameters", "inputs", "accounts", "files"):
        assert f"\n{heading}\n" in sheet
    record = smoke("show", "tokenizer/smoke", "--json").document
    assert (record["fingerprint"], record["params"]["vocab_size"]) == (fingerprint, 1000)
    for name in (fingerprint[:10], f"tokenizer/{fingerprint[:10]}", fingerprint):
        assert smoke("show", name).out.startswith("tokenizer/smoke@v1")
    assert "no corpus in" in smoke("show", f"corpus/{fingerprint[:10]}").err
    words = smoke("show", "card/smoke", "--read").out
    assert words.startswith("---\nlicense: ")  # what a hub reads
    made = smoke("show", "card/smoke", "--json").document["timings"]["ended"][:10]
    assert f'\nversion: "v2"\ndate: "{made}"\n---\n' in words
    assert f"\n# Training data\n\ncard/smoke, version v2, made on {made}.\n" in words


def test_the_run_that_made_it_is_named_with_its_page(tokmill: Tokmill) -> None:
    store, url = Store.open(tokmill.store), "http://127.0.0.1:4200/runs/flow-run/0a1b"
    store.catalog.add_run("run-1", begun=Begun(name="nightly", profile="p", url=url))
    store.realize(ask("known"), Provenance.collect(run_id="run-1"))
    store.realize(ask("unknown", text="u"), Provenance.collect(run_id="run-2"))
    lines = {
        line.strip().partition(" ")[2].strip() for line in tokmill("show", "text/known").out.splitlines()
    }
    assert {"run-1 (nightly)", url} <= lines
    assert tokmill("show", "text/known", "--json").document["run_page"] == url
    assert "http" not in tokmill("show", "text/unknown").out


def test_lineage_goes_up_down_and_both_ways_as_tree_graph_page_and_sql(smoke: Tokmill, tmp_path) -> None:
    up = smoke("lineage", "packed/smoke").out
    assert up.startswith("packed/smoke@v2\n")
    assert {"corpus/smoke@v1", "files"} <= set(up.replace("─", " ").split())
    assert "card/smoke" in smoke("lineage", "corpus/smoke", "--down").out
    assert smoke("lineage", "packed/smoke", "--format", "mermaid").out.startswith("flowchart")
    assert smoke("lineage", "packed/smoke", "--format", "graphviz").out.startswith("digraph")
    both = smoke("lineage", "packed/smoke", "--up", "--down", "--format", "json").document
    assert both["direction"] == "both"
    page, other = tmp_path / "lineage.html", tmp_path / "up.html"
    assert smoke("lineage", "counts/smoke", "--html", page).out.startswith(f"{page} shows ")
    assert all(f">{name}<" in page.read_text("utf-8") for name in ("corpus/smoke@v1", "card/smoke@v2"))
    assert smoke("lineage", "counts/smoke", "--up", "--html", page).code == 2  # the file exists
    smoke("lineage", "counts/smoke", "--up", "--html", other)
    assert "card/smoke" not in other.read_text("utf-8")
    users = "SELECT DISTINCT user_kind FROM lineage_down WHERE artifact = 'counts/smoke@v1' AND depth = 1"
    assert {"user_kind": "tokenizer"} in smoke("sql", users, "--json").document


def test_of_two_artifacts_only_what_bears_identity_differs(smoke: Tokmill) -> None:
    two = ("compare", "--artifacts", "pack_plan/smoke@v1", "pack_plan/smoke@v2")
    shown = smoke(*two, "--fields").out
    assert "pack_plan.sequence_length 128 → 64" in shown
    assert "params.sequence_length\n  a  128\n  b  64" in shown
    document = smoke(*two, "--json").document
    assert document["fields"] == [{"field": "params.sequence_length", "a": 128, "b": 64}]
    assert [cause["field"] for cause in document["causes"]] == ["pack_plan.sequence_length"]
    assert "the same content" in smoke("compare", "--artifacts", "corpus/smoke", "corpus/smoke").out


def test_damage_is_named_and_fails(copied: Tokmill) -> None:
    store = Store.open(copied.store)
    assert copied("store", "verify").out.endswith("no problems\n")
    damaged = store.path(store.resolve("tokenizer/smoke")) / "tokmill.json"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    done = copied("store", "verify", "tokenizer/smoke")
    assert (done.code, "tokenizer/smoke@v1: tokmill.json" in done.out) == (1, True)
    assert copied("store", "verify", "tokenizer/smoke", "--sizes").code == 0
    assert json.loads(copied("store", "verify", "--json").out)["problems"][0]["path"] == "tokmill.json"
    file = next(store.path(store.resolve("packed/smoke@v1")).glob("*.bin"))
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])
    done = copied("data", "export", "packed/smoke@v1", "-f", "npy")
    assert (done.code, done.out, "shard-00000.bin: has digest" in done.err) == (1, "", True)
    assert len(list((copied.store / "packed").iterdir())) == 2  # nothing is exported


def test_an_export_has_the_sequences_and_leads_to_the_text(copied: Tokmill) -> None:
    store, out = Store.open(copied.store), copied.folder / "data"
    asked = ("data", "export", "packed/smoke@v1", "--format", "megatron", "--format", "npy")
    document = copied(*asked, "--out", out, "--json").document
    assert document["artifact"] == "packed/smoke.megatron+npy@v1"
    before, after = PackedReader.open(store.path(store.resolve("packed/smoke@v1"))), PackedReader.open(out)
    assert document["metrics"]["num_sequences"] == len(before)
    ids = [[sequence.input_ids.tolist() for sequence in reader] for reader in (before, after)]
    assert ids[0] == ids[1]
    checked = ["b2sum", "--length=256", "--check", "--quiet", "checksums.txt"]
    assert subprocess.run(checked, cwd=out, check=False).returncode == 0
    lineage = copied("lineage", "packed/smoke.megatron+npy").out
    assert all(name in lineage for name in ("packed/smoke@v1", "corpus/smoke@v1"))
    assert copied(*asked).out == copied(*asked).out
    assert len(list((copied.store / "packed").iterdir())) == 3  # made once


def test_an_alias_calls_an_artifact_and_the_catalog_can_be_deleted_and_made_again(copied: Tokmill) -> None:
    done = copied("store", "tag", "packed/smoke@v1", "prod")
    assert (done.code, done.out) == (0, "packed/smoke@prod is now packed/smoke@v1\n")
    assert copied("show", "packed/smoke@prod").out.startswith("packed/smoke@v1")
    assert "@prod" in copied("ls", "packed", "--all").out
    before = copied("ls", "--all", "--json").out
    Store.open(copied.store).catalog.path.unlink()
    assert copied("store", "rebuild", "--json").document["artifacts"] > 10
    assert copied("ls", "--all", "--json").out == before


def test_text_goes_to_ids_and_back(smoke: Tokmill, tmp_path) -> None:
    def decoded(*ids: object) -> str:
        return smoke("decode", "-t", "smoke", *ids).out

    ids = smoke("encode", "-t", "smoke", "Guten Morgen, 世界").out
    assert decoded(*ids.split()) == "Guten Morgen, 世界\n"
    assert len(smoke("encode", "-t", "tokenizer/smoke@v1", "one", "two").out.splitlines()) == 2
    text, file, of_file = "one line\n\nanother, with \ttabs \n", tmp_path / "text.txt", tmp_path / "ids.txt"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode().replace(b"\n", b"\r\n"))
    of_file.write_text(smoke("encode", "-t", "smoke", "--file", file).out)
    assert decoded("--file", of_file) == text
    file.write_text("one\ntwo\n")
    assert decoded(*smoke("encode", "-t", "smoke", "--whole", "--file", file).out.split()) == "one\ntwo\n\n"
    lines = smoke("encode", "-t", "smoke", "--json", "one", "two").out
    entries = [json.loads(line) for line in lines.splitlines()]
    assert [entry["num_tokens"] for entry in entries] == [len(entry["ids"]) for entry in entries]
    assert "".join(entries[0]["tokens"]) == "one"
    of_file.write_text(lines)
    again = smoke("decode", "-t", "smoke", "--json", "--file", of_file).out
    assert [json.loads(line)["text"] for line in again.splitlines()] == ["one", "two"]
    (exported,) = smoke.store.glob("tokenizer/*/exports/huggingface/tokenizer.json")
    assert smoke("encode", "-t", exported, "one").out == smoke("encode", "-t", "smoke", "one").out


def test_a_special_token_is_an_error_unless_it_is_meant(smoke: Tokmill) -> None:
    asked = ("encode", "-t", "smoke", "a<|endoftext|>b")
    refused = smoke(*asked)
    assert (refused.code, "--special-tokens allowed" in refused.err) == (1, True)
    assert "document 1 holds the special token '<|endoftext|>'" in refused.err
    allowed, as_text = (smoke(*asked, "--special-tokens", how).out.split() for how in ("allowed", "as_text"))
    assert len(allowed) == 3 < len(as_text)


NO_IDS = ["one two", "[1, 2", "{}", '{"ids": "12"}', '{"ids": {}}', "[1.5]", "[true]", "[" * 9999]


@pytest.mark.parametrize("line", NO_IDS)
def test_what_is_no_list_of_ids_says_the_line(smoke: Tokmill, tmp_path, line: str) -> None:
    (tmp_path / "ids.txt").write_text(f"1 2\n{line}\n")
    done = smoke("decode", "-t", "smoke", "--file", tmp_path / "ids.txt")
    assert (done.code, f"line 2: '{line[:60]}' is not a list of token ids" in done.err) == (2, True)


def test_input_without_an_end_is_refused(smoke: Tokmill, monkeypatch) -> None:
    monkeypatch.setattr("tokmill.flows.commands.text._MOST_BYTES", 1000)
    for whole in ((), ("--whole",)):
        done = smoke("encode", "-t", "smoke", *whole, "--file", "/dev/zero")
        assert (done.code, "has more than 1,000 bytes" in done.err) == (2, True)


def test_what_a_removal_lists_goes_at_once_and_nothing_else(copied: Tokmill) -> None:
    def there() -> dict[str, int]:
        records = map(read_record, Store.open(copied.store).layout.artifacts())
        return {record.reference: record.num_bytes for record in records}

    out = copied("store", "remove", "card/smoke@v1").out  # nothing was made from it
    assert [line.split()[:2] for line in out.splitlines() if "@v" in line] == [["card/smoke@v1", "2"]]
    assert out.splitlines()[-1].startswith(f"{copied.store}: 1 artifact removed, ")
    before, asked = there(), ("store", "remove", "tokenizer/smoke", "--with-dependents")
    shown = copied(*asked)
    names = [line.split()[0] for line in shown.out.splitlines() if "@v" in line]
    kinds = {name.partition("/")[0] for name in names}
    assert (shown.code, "--apply" in shown.err, names[-1]) == (0, True, "tokenizer/smoke@v1")
    assert {"card", "packed", "packed_shard", "encoded_shard", "audit"} <= kinds
    assert not {"corpus", "counts", "balance"} & kinds
    listed = copied(*asked, "--json").document
    assert there() == before
    gone = copied(*asked, "--json", "--apply").document
    assert (listed["applied"], gone["applied"]) == (False, True)
    assert listed["removed"] == gone["removed"]
    assert {row["artifact"]: row["num_bytes"] for row in gone["removed"]}.items() <= before.items()
    assert there().keys() == before.keys() - {row["artifact"] for row in gone["removed"]}
    assert copied("store", "verify", "--sizes").code == 0


def test_what_a_run_holds_is_neither_listed_nor_removed_and_each_kept_one_has_its_reason(
    copied: Tokmill,
) -> None:
    store = Store.open(copied.store)
    held = store.resolve("packed/smoke@v1")
    store.tag(store.resolve("tokenizer/smoke"), "prod")
    asked = ("store", "gc", "--older-than", "0", "--keep", "0")
    with store.at_work("a test") as lease:
        lease.hold([held.fingerprint])
        for how in ((), ("--apply",)):
            done = copied("store", "remove", "mixture/smoke", "--with-dependents", *how)
            assert (done.code, done.out, "packed/smoke@v1 is not removed" in done.err) == (1, "", True)
        shown, document = copied(*asked, **WIDE), copied(*asked, "--json", "--each").document
    assert store.holds(held)
    rows = {line.split()[0]: line for line in shown.out.splitlines() if line and line[0].isalpha()}
    ends = {"card": "unused", "alias": "has an alias", "running": "needed by running work"}
    assert rows["would"].split()[-4:] == ["number", "size", "age", "why"]
    assert all(rows[name].endswith(why) for name, why in ends.items())
    assert rows["input"].endswith("what stays was made from it")
    assert all(words in shown.err for words in ("--apply", "unused: no alias"))
    listed = {row["artifact"]: row for row in [*document["removed"], *document["kept_artifacts"]]}
    assert len(listed) == len(list(store.layout.artifacts()))
    assert {row["why"] for row in document["removed"]} == {"unused"}
    assert listed["tokenizer/smoke@v1"]["why"] == "alias tokenizer/smoke@prod"
    assert listed["packed/smoke@v1"]["why"].startswith("needed by a test")
    assert listed["corpus/smoke@v1"]["reason"] == "input"
    young = copied("store", "gc", "--older-than", "1", "--json", "--each").document
    assert young["removed"] == []
    assert {"in the last 1 day"} == {
        row["why"].partition(" ago, ")[2] for row in young["kept_artifacts"] if row["reason"] == "recent"
    }


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize("each", [(), ("--each",)])
def test_the_table_of_a_collection_fits_the_terminal(copied: Tokmill, width: int, each) -> None:
    copied("store", "tag", "tokenizer/smoke", "prod")
    out = copied("store", "gc", "--older-than", "14", *each, COLUMNS=str(width)).out
    lines = out.splitlines()[:-1]  # the last one has the store's path
    assert max(map(len, lines)) <= width
    assert {"alias", "14"} <= set(" ".join(lines).split())


def test_a_query_gives_every_row_and_value_as_table_json_and_csv(
    smoke: Tokmill, tmp_path, monkeypatch
) -> None:
    count = "FROM artifacts SELECT kind, count(*) AS number WHERE kind = 'packed' GROUP BY kind"
    assert [line.split() for line in smoke("sql", count).out.splitlines()[::2]][1] == ["packed", "2"]
    query = "FROM usage_tokens SELECT token_id, token, num_occurrences, NULL AS none, 'nan'::DOUBLE AS nan"
    rows = smoke("sql", query, "--json").document
    written = list(csv.DictReader(io.StringIO(smoke("sql", query, "--csv").out)))
    (usage,) = {path.parent for path in smoke.store.glob("usage/*/record.json")}
    expected = pq.read_table(usage / "catalog" / "usage_tokens.parquet").to_pylist()
    assert len(rows) == len(written) == len(expected) == 1000
    for row, line, one in zip(rows, written, expected, strict=True):
        assert row["num_occurrences"] == int(line["num_occurrences"]) == one["num_occurrences"]
        assert row["token"] == line["token"] == one["token"].decode("utf-8", "backslashreplace")
        assert (row["none"], row["nan"], line["none"]) == (None, None, "")
    (row,) = smoke("sql", "SELECT 1 AS a, 2 AS a, 3 AS a_2, [{'b': 2}.b] AS a", "--json").document
    assert row == {"a": 1, "a_3": 2, "a_2": 3, "a_4": [2]}  # a repeated name is kept
    assert smoke("sql", 'SELECT 1 AS "[b]"').out.startswith("[b]\n")
    few = smoke("sql", "FROM usage_tokens SELECT token_id", "--limit", 7)
    assert (len(few.out.splitlines()), "993 more rows" in few.err) == (2 + 7, True)
    (tmp_path / "one.sql").write_text("SELECT 41 + 1 AS answer -- a comment", "utf-8")
    assert "42" in smoke("sql", "--file", tmp_path / "one.sql").out
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 43 AS answer;"))
    assert "43" in smoke("sql", "-").out


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
    ids=lambda value: value[:20],
)
def test_what_is_no_question_is_refused(smoke: Tokmill, query: str, message: str) -> None:
    before = sorted(smoke.folder.iterdir())
    done = smoke("sql", query)
    assert (done.code, done.out, message in done.err) == (1, "", True), done.err
    assert sorted(smoke.folder.iterdir()) == before


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (("ls", "tokeniser"), 2, "did you mean tokenizer?"),
        (("show", "packt/smoke"), 2, "packed/smoke"),
        (("show", "mixture/smoke", "--read"), 2, ""),
        (("store", "tag", "packed/smoke@v1", "v7"), 1, ""),
        (("data", "export", "packed/smoke", "-f", "arow"), 2, "arow is not known; did you mean arrow?"),
        (("data", "export", "mixture/smoke", "-f", "npy"), 2, "is of kind mixture, not packed"),
        (("data", "export", "packed/smoke", "-f", "npy", "--out", "."), 2, "exists; name a new folder"),
        (("encode", "-t", "smokk", "x"), 2, "tokenizer/smoke"),
        (("encode", "-t", "corpus/smoke", "x"), 2, "not tokenizer"),
        (("encode", "-t", "smoke", "--file", "x", "text"), 2, ""),
        (("decode", "-t", "smoke", "99999"), 1, "99999"),
        (("encode", "-t", "smoke", "--file", "bad.txt"), 2, "encode: line 2 is not UTF-8 at byte 3"),
        (("encode", "-t", "smoke", "--whole", "--file", "bad.txt"), 2, "input is not UTF-8 at byte 5"),
        (("encode", "-t", "smoke", "one", "caf\udce9"), 2, "the argument 'caf\\udce9' is not UTF-8 text"),
        (("decode", "-t", "smoke", "--file", "bad.txt"), 2, "decode: line 1: 'a' is not a list"),
        (("store", "gc", "--older-than=1e300"), 1, "at most 36,500"),
        (("sql",), 2, ""),
        (("sql", "SELECT 1", "--file", "x.sql"), 2, ""),
        (("sql", "--file", "missing.sql"), 2, ""),
        (("sql", "--file", "/dev/zero"), 1, "is a device"),
        (("sql", "SELECT 1", "--csv", "--json"), 2, ""),
        (("sql", "SELECT '\udcff'"), 2, "is not UTF-8"),
    ],
    ids=range(22),
)
def test_wrong_usage_is_said(
    smoke: Tokmill, tokmill: Tokmill, line: tuple[str, ...], code: int, says: str
) -> None:
    (tokmill.folder / "bad.txt").write_bytes(b"a\ncaf\xe9\n")
    done = tokmill(*line, TOKMILL_STORE=str(smoke.store))
    assert (done.code, done.out, says in done.err) == (code, "", True), done.err
