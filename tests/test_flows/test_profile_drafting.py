"""`tokmill init`: the detected formats of files, and the profile written for them."""

import base64
import gzip
import json
import os
import shlex

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.test_tasks.test_ingest import REFUSED
from tokmill.flows.errors import UsageError
from tokmill.flows.profile import load_profile
from tokmill.flows.profile.drafting import draft_profile
from tokmill.flows.profile.sniffing import sniff as sniff_files
from tokmill.flows.profile.text_column import beginning
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tokenizer.splitting import compile_pattern


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draft(path, *sources, overwrite=False):
    return draft_profile(path, sources, vocab_size=300, sequence_length=64, overwrite=overwrite)


def sniff(path, **given):
    return sniff_files([path], ReadOptions(**given))


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


class TestSniffing:
    def test_plain_text_is_a_document_a_file(self, tmp_path):
        (tmp_path / "a.txt").write_text("One.\n\nTwo.\n")
        assert sniff(tmp_path / "a.txt").options == {"format": "text"}

    def test_text_with_an_end_token_is_delimited_by_it(self, tmp_path):
        (tmp_path / "a.txt").write_text("One.<|endoftext|>Two.")
        assert sniff(tmp_path / "a.txt").options == {"format": "delimited", "delimiter": "<|endoftext|>"}

    def test_a_large_file_is_a_document_as_a_small_one_is(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"A line.\n" * (3 << 20))
        assert sniff(tmp_path / "a.txt").options == {"format": "text"}

    def test_how_csv_files_are_written(self, tmp_path):
        names = "column_1", "column_2"
        for name, content, options in (
            ("a.csv", "no;story\n1;Once, or twice.\n", {"delimiter": ";"}),
            ("a.csv", "sep=|\nno|story\n1|Once; or twice.\n", {"delimiter": "|"}),
            ("a.tsv", 'no\tstory\n1\t"Once," she said\n', {"quoting": "none"}),
            ("a.csv", "1,Once or twice.\n2,Never.\n", {"columns": list(names), "text_column": names[1]}),
        ):
            (tmp_path / name).write_text(content)
            expected = {"format": "csv", "text_column": "story", **options}
            assert sniff(tmp_path / name).options == expected
            assert ReadOptions(**expected)

    @pytest.mark.parametrize(
        ("rows", "column"),
        [
            (["v1,v2,,", 'ham,"Go until, crazy one",,', "spam,Win a prize of ours,,"], "v2"),
            (
                ["Time,How was it for us?", "2023/01/01,Not good at all", "2023/01/02,No"],
                "How was it for us?",
            ),
            (["word,definition", *(f"w{n},A kind of {n}" for n in range(40)), "word,A unit"], "definition"),
            (["3,One,a story of it", "4,Two,another story"], "column_3"),
            (["ham,Go now and see", "spam,Win a prize of ours", "ham,See you there again"], "column_2"),
            (['"3","A title","a story, of it"', '"3","A title","another, story"'], "column_3"),
        ],
    )
    def test_whether_the_first_row_is_a_header(self, tmp_path, rows, column):
        (tmp_path / "a.csv").write_text("\n".join([*rows, ""]))
        options = sniff(tmp_path / "a.csv").options
        assert options["text_column"] == column
        assert ("columns" in options) == column.startswith("column_")

    def test_another_encoding_of_a_table_is_named(self, tmp_path):
        (tmp_path / "a.csv").write_bytes("text\nGröße\n".encode("cp1252"))
        with pytest.raises(SourceError, match=r"a\.csv is not UTF-8 .*--encoding cp1252"):
            sniff(tmp_path / "a.csv")
        assert sniff(tmp_path / "a.csv", encoding="cp1252").documents == ("Größe",)

    def test_a_quoting_that_is_not_shown_can_be_given(self, tmp_path):
        (tmp_path / "a.tsv").write_text('no\tstory\n1\t"Once"\n2\tTwice or more\n')
        with pytest.raises(SourceError, match=r"a\.tsv: .*set quoting = 'none'"):
            sniff(tmp_path / "a.tsv")
        assert sniff(tmp_path / "a.tsv", quoting="none").options["quoting"] == "none"

    @pytest.mark.parametrize(
        "content", [gzip.compress(b"PAR1" * 999, mtime=0)[:-9], b"PAR1 is not compressed"]
    )
    def test_damage_in_a_compressed_table_is_named(self, tmp_path, content):
        (tmp_path / "a.parquet.gz").write_bytes(content)
        with pytest.raises(SourceError, match=r"a\.parquet\.gz, which is damaged"):
            sniff(tmp_path / "a.parquet.gz")

    @pytest.mark.parametrize(
        ("record", "text", "identifier"),
        [
            ({"id": 7, "text": "a"}, "text", "id"),
            ({"url": "https://a-long-address", "content": "a"}, "content", "url"),
            ({"title": "short", "words": "the longest of them all"}, "words", None),
            ({"message": [{"role": "user"}], "words": "a"}, "words", None),
        ],
    )
    def test_the_text_column_has_a_usual_name_or_the_longest_text(self, tmp_path, record, text, identifier):
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(record).encode() + b"\n"))
        options = sniff(tmp_path / "a.jsonl.gz").options
        assert options["format"] == "jsonl"
        assert (options["text_column"], options.get("id_column")) == (text, identifier)

    @pytest.mark.parametrize("name", REFUSED)
    def test_what_is_not_read_is_named_and_no_encoding_is_suggested(self, folder, name):
        data, what = REFUSED[name]
        (folder / name).write_bytes(data)
        with pytest.raises(UsageError, match=f"init: source 's': {name} holds .*{what}") as told:
            draft(folder / "p.toml", f"s={name}")
        assert "encoding" not in str(told.value)

    def test_what_a_file_holds_decides(self, folder):
        (folder / "a.txt").write_bytes(b"no\tbody\n1\tsome words\n2\tmore words\n")
        (folder / "b.json.gz").write_bytes(gzip.compress(b'{"body": "a"}\n{"body": "b"}\n'))
        seen = [source.seen.options for source in draft(folder / "p.toml", "a=a.txt", "b=b.json.gz")]
        assert seen == [
            {"format": "csv", "text_column": "body", "delimiter": "\t"},
            {"format": "jsonl", "text_column": "body"},
        ]

    def test_columns_of_tables(self, tmp_path):
        table = pa.table({"doc_id": [1], "body": ["x"]})
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        pyarrow.feather.write_feather(table, tmp_path / "a.feather")
        (tmp_path / "a.tsv").write_text("doc_id\tbody\n1\tx\n")
        for name, form in (("a.parquet", "parquet"), ("a.feather", "arrow"), ("a.tsv", "csv")):
            assert sniff(tmp_path / name).options == {
                "format": form,
                "text_column": "body",
                "id_column": "doc_id",
            }

    @pytest.mark.parametrize("content", [b"", b"not json\n", b"[1]\n"])
    def test_a_file_without_a_record(self, tmp_path, content):
        (tmp_path / "a.jsonl").write_bytes(content)
        (tmp_path / "a.parquet").write_bytes(content and b"PAR1\xff" + content)
        for name in ("a.jsonl", "a.parquet"):
            with pytest.raises(SourceError, match=rf"no record of format .* at the beginning of .*{name}"):
                sniff(tmp_path / name)

    @pytest.mark.parametrize(("name", "lines"), [("a.json", True), ("a.jsonl", False)])
    def test_whether_json_is_an_array_or_lines_is_its_content_s(self, tmp_path, name, lines):
        rows = [{"text": "a"}, {"text": "b"}]
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows))
        options = sniff(tmp_path / name).options
        assert options == {"format": "jsonl" if lines else "json", "text_column": "text"}

    @pytest.mark.parametrize("line", ['\x1e{"text": "a"}', '{"text": "a"},'])
    def test_what_a_run_would_not_read_is_no_record(self, tmp_path, line):
        (tmp_path / "a.jsonl").write_text(f"{line}\n")
        with pytest.raises(SourceError, match="no record of format jsonl"):
            sniff(tmp_path / "a.jsonl")

    def test_a_record_in_another_file_or_line_decides(self, tmp_path):
        (tmp_path / "a.jsonl").write_bytes(b"")
        (tmp_path / "b.jsonl").write_bytes(b'{"n": 1, "text": null}\nno json\n{"n": 1e999, "text": "a"}\n')
        paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
        assert sniff_files(paths).options == {"format": "jsonl", "text_column": "text"}

    def test_files_of_several_formats_go_by_their_suffixes(self, tmp_path):
        for name in ("a.txt", "b.jsonl"):
            (tmp_path / name).write_text('{"content": "a"}\n')
        options = sniff_files([tmp_path / "a.txt", tmp_path / "b.jsonl"]).options
        assert options == {"format": "auto", "text_column": "content"}


class TestDrafting:
    def test_what_is_written_loads_and_finds_the_same_files(self, folder):
        (folder / "books").mkdir()
        (folder / "books" / "a.txt").write_text("Call me.")
        (folder / "web.jsonl").write_text('{"id": 1, "content": "x"}\n')
        drafted = draft(folder / "own.toml", "books=books/*.txt", "web=web.jsonl")
        assert [(one.name, one.num_files) for one in drafted] == [("books", 1), ("web", 1)]
        profile = load_profile(folder / "own.toml")
        assert profile.sources["books"].files == [f"{folder}/books/*.txt"]
        assert profile.sources["web"].text_column == "content"
        assert (profile.training().vocab_size, profile.pack.sequence_length) == (300, 64)

    def test_marks_stay_with_their_letters(self, folder):
        (folder / "a.txt").write_text("பிறக்கின்றனர்", encoding="utf-8")
        draft(folder / "own.toml", "a=a.txt")
        splitter = compile_pattern(load_profile(folder / "own.toml").training().split_pattern)
        assert splitter.split_text("பிறக்கின்றனர் கி") == ["பிறக்கின்றனர்", " கி"]

    def test_patterns_are_relative_to_where_they_were_typed(self, folder):
        (folder / "a.txt").write_text("x")
        draft(folder / "profiles" / "own.toml", "a=a.txt")
        assert 'files = ["../a.txt"]' in (folder / "profiles" / "own.toml").read_text()

    def test_a_name_that_only_begins_like_a_placeholder(self, folder):
        (folder / "{a}.txt").write_text("x")
        draft(folder / "profiles" / "own.toml", "a={a}.txt")
        files = load_profile(folder / "profiles" / "own.toml").sources["a"].files
        assert files == [f"{folder}/profiles/../{{a}}.txt"]

    def test_a_name_given_twice_has_both_patterns(self, folder):
        (folder / "a.txt").write_text("x")
        (folder / "b.txt").write_text("y")
        drafted = draft(folder / "own.toml", "s=a.txt", "s=b.txt")
        assert [(one.name, one.num_files) for one in drafted] == [("s", 2)]

    def test_names_with_dots_are_quoted(self, folder):
        (folder / "a.txt").write_text("x")
        draft(folder / "own.toml", "zh.hans=a.txt")
        assert list(load_profile("own.toml").sources) == ["zh.hans"]

    def test_nothing_is_overwritten_unless_forced(self, folder):
        (folder / "a.txt").write_text("x")
        (folder / "own.toml").write_text("mine")
        with pytest.raises(UsageError, match="--force"):
            draft(folder / "own.toml", "a=a.txt")
        assert (folder / "own.toml").read_text() == "mine"
        draft(folder / "own.toml", "a=a.txt", overwrite=True)
        assert "[sources.a]" in (folder / "own.toml").read_text()

    @pytest.mark.parametrize(
        ("source", "rule"),
        [
            ("a", "name=glob"),
            ("=a.txt", "name=glob"),
            ("a b=x", "name=glob"),
            ("a=nothing/*.txt", "matches no file"),
        ],
    )
    def test_a_source_that_does_not_do(self, folder, source, rule):
        with pytest.raises(UsageError, match=rule):
            draft(folder / "own.toml", source)
        assert not (folder / "own.toml").exists()

    @pytest.mark.parametrize("name", ["own", "own.json", "my own.toml"])
    def test_a_file_that_is_no_profile_s(self, folder, name):
        with pytest.raises(UsageError):
            draft(folder / name, "a=a.txt")


class TestReasons:
    @pytest.mark.parametrize(
        ("name", "data", "said"),
        [
            ("a.jsonl", b'{"id": 1, "text": "a"}\n', "columns id, text; text by its name"),
            ("a.jsonl", b'{"n": 1, "words": "a"}\n', "columns n, words; words is the only one with text"),
            (
                "a.json",
                b'[{"a": "b", "words": "a b c d e f"}]',
                "words has the longest texts, 11 characters; next is a with 1",
            ),
            (
                "a.jsonl",
                b'{"text": "a", "messages": [{"role": "user", "content": "x"}]}\n',
                "messages has chats",
            ),
            (
                "a.csv",
                b'title,words\n"a\nb\nc","a very long text\nwith more lines"\n',
                "columns title, words; words has",
            ),
        ],
    )
    def test_a_draft_says_why(self, tmp_path, name, data, said):
        (tmp_path / name).write_bytes(data)
        assert said in sniff(tmp_path / name).remark

    @pytest.mark.parametrize("key", ["messages", "conversations"])
    def test_a_chat_is_no_text(self, tmp_path, key):
        row = {key: [{"role": "user", "content": "a"}], "id": 7}
        (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
        pyarrow.parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
        for name in ("a.jsonl", "a.parquet"):
            with pytest.raises(SourceError, match=f"'{key}' has chats"):
                sniff(tmp_path / name)

    def test_what_is_not_utf_8_is_refused_at_once(self, tmp_path):
        (tmp_path / "a.txt").write_bytes("吾輩は猫である".encode("shift_jis"))
        with pytest.raises(SourceError, match=r"a\.txt is not UTF-8 \(byte 0x8c at 0\).*--encoding"):
            sniff(tmp_path / "a.txt")
        assert sniff(tmp_path / "a.txt", encoding="shift_jis").options == {"format": "text"}

    def test_a_draft_with_what_it_leaves_out_and_an_encoding(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data" / "old").mkdir(parents=True)
        for place in ("data/a.txt", "data/old/b.txt", "data/c.bak.txt"):
            (tmp_path / place).write_bytes("猫".encode("shift_jis"))
        (drafted,) = draft_profile(
            tmp_path / "own" / "own.toml",
            ["s=data/**/*.txt"],
            vocab_size=300,
            sequence_length=64,
            overwrite=False,
            exclude=["*.bak.txt", "data/old"],
            reading={"encoding": "sjis"},
        )
        assert drafted.num_files == 1
        source = load_profile(tmp_path / "own" / "own.toml").sources["s"]
        assert source.encoding == "shift_jis"
        assert source.exclude[0] == "*.bak.txt"
        assert source.exclude[1].endswith("/../data/old")


def prose(number, words=40):
    """Return a text like no other."""
    return " ".join(f"{WORDS[number * 7 % 11]} {WORDS[(number + i * i) % 11]}" for i in range(words // 2))


WORDS = ("the", "river", "house", "under", "seven", "many", "blue", "window", "of", "bread", "slowly")
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
URL = "https://www.example.com/a/very/long/address/of/a/page/somewhere.html"
ROWS = 60
TABLES = {
    # Rows by their number, and the column that is right.
    "squad": (
        lambda n: {
            "id": HASH[n % 9 :],
            "title": "New_York_City",
            "context": prose(n // 5, 120),
            "question": prose(n, 8),
            "answers": {"text": [prose(n, 4)]},
        },
        "context",
    ),
    "crawl": (
        lambda n: {
            "sha": HASH,
            "address": URL * 9,
            "date": "2021-03-04",
            "licence": prose(1, 200),
            "page": prose(n),
        },
        "page",
    ),
    "long first": (
        lambda n: {
            "title": prose(n, 4 if n else 400),
            "url": URL * (1 if n else 99),
            "words": prose(n, n + 2),
        },
        "words",
    ),
    "in capitals": (lambda n: {"Id": HASH, "Summary": prose(n), "Text": "a" * n + "b"}, "Text"),
    "a few values": (lambda n: {"text": "en", "body": "sedan car", "passage": prose(n)}, "passage"),
    "sums": (lambda n: {"text": f"{n} + 1 = {n + 1}", "said": prose(n)}, "text"),
    "bytes as text": (
        lambda n: {
            "lines": base64.encodebytes(bytes(range(256)) * 2).decode(),
            "hex": f"{n:04x} {bytes(range(99)).hex(' ')}",
            "agent": f"Mozilla/5.0 (X11; Linux x86_64; rv:{n}) Gecko/20100101 Firefox/{n}.0",
            "date": f"Mon Apr {n % 30:02} 22:19:45 PDT 20{n:02}",
            "caption": prose(n, 6),
        },
        "caption",
    ),
    "commits": (lambda n: {"message": prose(n, 6), "diff": prose(n, 90)}, "diff"),
    "thai": (lambda n: {"key": f"th-{n}", "page": "ภาษาไทยเป็นภาษา" * (n + 1)}, "page"),
    "separators": (lambda n: {"id": n, "page": f"a\u2028b\u0085c {prose(n)}"}, "page"),
    "name with lines": (lambda n: {"a\n[x]\x7f": prose(n), "b": n}, "a\n[x]\x7f"),
}


class TestColumns:
    @pytest.mark.parametrize("table", TABLES)
    @pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
    def test_the_rows_decide(self, folder, table, suffix):
        make, column = TABLES[table]
        rows = [make(number) for number in range(ROWS)]
        write_rows(folder / "a.jsonl", rows)
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "a.parquet", row_group_size=20)
        (drafted,) = draft(folder / "own.toml", f"s=a.{suffix}")
        assert load_profile(folder / "own.toml").sources["s"].text_column == column
        assert drafted.seen.documents == tuple(beginning(rows[index][column]) for index in (0, ROWS - 1))

    def test_texts_as_bytes(self, tmp_path):
        pyarrow.parquet.write_table(pa.table({"id": ["a b c d"], "text": [b"a"]}), tmp_path / "a.parquet")
        assert sniff(tmp_path / "a.parquet").options["text_column"] == "text"

    def test_a_long_field_of_a_csv(self, tmp_path):
        (tmp_path / "a.csv").write_text(f"n,story\n1,{'so on ' * 30_000}\n")
        assert sniff(tmp_path / "a.csv").options["text_column"] == "story"

    @pytest.mark.parametrize(
        ("make", "said"),
        [
            (  # CodeSearchNet
                lambda n: {
                    "repository_name": "a/b",
                    "whole": f"def {prose(n)}",
                    "code": f"def {prose(n, 38)}",
                },
                r"'whole' \(\d+ characters, as 'def [^']*'\); 'code' .*--text-column s=whole",
            ),
            (lambda n: {"instruction": prose(n, 6), "output": prose(n, 90)}, "'output'.*'instruction'"),
            (
                lambda n: {"title": prose(n, 8), "answers": [{"text": prose(n, 90)}]},
                "'answers' has lists of objects.*s=title",
            ),
            (lambda n: {"id": HASH, "text": {"en": prose(n)}}, r"'text' has objects.*columns: id, text"),
            (lambda n: {"title": prose(n, 8), "text": [prose(n), "b"]}, "'text' has lists"),
            (lambda n: {"questions": prose(n, 6), "answers": prose(n, 90)}, "'answers'.*'questions'"),
            (lambda n: {"id": HASH, "n": n}, "'id' has ids, numbers.*, 'n' has no text.*--text-column s=id"),
            (
                lambda n: {"text": "a b", "n": n},
                "'text' has a few texts again and again.*--text-column s=text",
            ),
        ],
    )
    def test_where_several_or_none_may_be_the_text_nothing_is_written(self, folder, make, said):
        write_rows(folder / "a.jsonl", map(make, range(ROWS)))
        with pytest.raises(UsageError, match=rf"^init: source 's': a\.jsonl: .*{said}"):
            draft(folder / "own.toml", "s=a.jsonl")
        assert not (folder / "own.toml").exists()

    def test_the_user_may_name_the_column(self, folder):
        write_rows(folder / "a.jsonl", [{"question": prose(1), "answer": prose(2), "n": 1}])
        names = {"vocab_size": 300, "sequence_length": 64, "overwrite": False}
        for wrong, said in (("answer", "source=column"), ("s=n", "'n' has no text"), ("s=x", "no row has")):
            with pytest.raises(UsageError, match=said):
                draft_profile(folder / "own.toml", ["s=a.jsonl"], text_columns=[wrong], **names)
        draft_profile(folder / "own.toml", ["s=a.jsonl"], text_columns=["s=answer"], **names)
        assert load_profile(folder / "own.toml").sources["s"].text_column == "answer"

    def test_files_without_the_column_are_named_with_a_fix(self, folder):
        names = ("a/0.jsonl", "b/0.jsonl", "b/[1].jsonl", "b/*.jsonl", "b/2.jsonl")
        for number, name in enumerate(names):
            (folder / name).parent.mkdir(exist_ok=True)
            write_rows(folder / name, [{"content" if name in names[::4] else "other": prose(number)}])
        with pytest.raises(UsageError, match=r"and 2 others .* no column 'content', which .*a/0") as error:
            draft(folder / "own.toml", "s=*/*.jsonl")
        options = shlex.split(str(error.value).partition(" with ")[2].partition(", or")[0])
        (drafted,) = draft_profile(
            folder / "own.toml",
            ["s=*/*.jsonl"],
            vocab_size=300,
            sequence_length=64,
            overwrite=False,
            exclude=options[1::2],
        )
        assert drafted.num_files == len(names[::4])

    def test_a_column_named_twice(self, tmp_path):
        table = pa.Table.from_arrays([pa.array(["a b c"])] * 2, names=["words", "words"])
        pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
        with pytest.raises(SourceError, match="text_column='words' names 2 of its columns"):
            sniff(tmp_path / "a.parquet")

    def test_a_large_row_group_is_not_read_whole(self, tmp_path):
        texts = [f"{number} {os.urandom(2000).hex()}" for number in range(8000)]
        pyarrow.parquet.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False)
        pool = pa.system_memory_pool()
        default, peak = pa.default_memory_pool(), pool.max_memory()
        pa.set_memory_pool(pool)
        try:
            sniff(tmp_path / "a.parquet")
        finally:
            pa.set_memory_pool(default)
        assert pool.max_memory() - peak < 16 << 20
