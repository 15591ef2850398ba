"""`tokmill init`: what files hold and which column is the text, and the profile that is drafted for them."""

import base64
import gzip
import json
import os
import shlex
from pathlib import Path

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

CSV = {"format": "csv", "text_column": "story"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draft(path: Path, *sources: str, overwrite: bool = False, **more):
    return draft_profile(path, sources, vocab_size=300, sequence_length=64, overwrite=overwrite, **more)


def sniff(path: Path, content: str | bytes | None = None, **given):
    """What is seen of a file, which is written first."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return sniff_files([path], ReadOptions(**given))


def write_rows(path: Path, rows) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def written_as_parquet(path: Path, rows: list[dict], **how) -> None:
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path, **how)


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.txt", "One.\n\nTwo.\n", {"format": "text"}),
        ("a.txt", "A line.\n" * (3 << 20), {"format": "text"}),  # however large
        ("a.txt", "One.<|endoftext|>Two.", {"format": "delimited", "delimiter": "<|endoftext|>"}),
        ("a.csv", "no;story\n1;Once, or twice.\n", {**CSV, "delimiter": ";"}),
        ("a.csv", "sep=|\nno|story\n1|Once; or twice.\n", {**CSV, "delimiter": "|"}),
        ("a.tsv", 'no\tstory\n1\t"Once," she said\n', {**CSV, "quoting": "none"}),
        ("a.csv", f"no,story\n1,{'so on ' * 30_000}\n", CSV),
        ("a.txt", "no\tstory\n1\tsome words\n2\tmore words\n", {**CSV, "delimiter": "\t"}),
        ("a.json", '{"text": "a"}\n{"text": "b"}\n', {"format": "jsonl", "text_column": "text"}),
        ("a.jsonl", '[{"text": "a"}, {"text": "b"}]', {"format": "json", "text_column": "text"}),
        ("a.jsonl", '{"id": 7, "text": "a"}', {"format": "jsonl", "text_column": "text", "id_column": "id"}),
        ("a.jsonl", '{"title": "it", "words": "the longest"}', {"format": "jsonl", "text_column": "words"}),
        ("a.jsonl", '{"message": [{"role": "user"}], "w": "a"}', {"format": "jsonl", "text_column": "w"}),
        ("a.jsonl", "{\"n\": 1, \"w\": null}\nno json\n{\"n\": 1e999, \"w\": \"a\"}\n",
         {"format": "jsonl", "text_column": "w"}),
        ("a.jsonl", '{"Text": "a\u2028b\x85c", "w": "the longest of all"}',
         {"format": "jsonl", "text_column": "Text"}),
        ("a.json.gz", gzip.compress(b'{"w": "a"}\n{"w": "b"}\n'), {"format": "jsonl", "text_column": "w"}),
    ],
    ids=range(16),
)  # fmt: skip
def test_what_a_file_holds_decides(tmp_path: Path, name: str, content: str | bytes, options: dict) -> None:
    assert sniff(tmp_path / name, content).options == options
    assert ReadOptions(**options)


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (["v1,v2,,", 'ham,"Go until, crazy one",,', "spam,Win a prize of ours,,"], "v2"),
        (["Time,How was it for us?", "2023/01/01,Not good at all", "2023/01/02,No"], "How was it for us?"),
        (["word,definition", *(f"w{n},A kind of {n}" for n in range(40)), "word,A unit"], "definition"),
        (["3,One,a story of it", "4,Two,another story"], "column_3"),
        (["ham,Go now and see", "spam,Win a prize of ours", "ham,See you there again"], "column_2"),
        (['"3","A title","a story, of it"', '"3","A title","another, story"'], "column_3"),
    ],
)
def test_whether_the_first_row_of_a_table_is_a_header(tmp_path: Path, rows: list[str], column: str) -> None:
    options = sniff(tmp_path / "a.csv", "\n".join([*rows, ""])).options
    assert options["text_column"] == column
    assert ("columns" in options) == column.startswith("column_")


def test_columns_of_tables_and_files_of_several_formats(tmp_path: Path) -> None:
    table = pa.table({"doc_id": [1], "body": [b"x"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "a.feather")
    (tmp_path / "a.tsv").write_text("doc_id\tbody\n1\tx\n")
    for name, form in (("a.parquet", "parquet"), ("a.feather", "arrow"), ("a.tsv", "csv")):
        columns = {"text_column": "body", "id_column": "doc_id"}
        assert sniff(tmp_path / name).options == {"format": form, **columns}
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "b.jsonl").write_text('{"body": "a"}\n')
    both = [tmp_path / "empty.jsonl", tmp_path / "b.jsonl"]
    assert sniff_files(both).options == {"format": "jsonl", "text_column": "body"}
    (tmp_path / "c.txt").write_text('{"body": "a"}\n')
    assert sniff_files([*both, tmp_path / "c.txt"]).options == {"format": "auto", "text_column": "body"}


CUT = gzip.compress(b"PAR1" * 999, mtime=0)[:-9]


@pytest.mark.parametrize(
    ("name", "content", "said", "fix", "seen"),
    [
        ("a.csv", "text\nGröße\n".encode("cp1252"), "a.csv is not UTF-8 .*--encoding cp1252",
         {"encoding": "cp1252"}, {"format": "csv", "text_column": "text", "encoding": "cp1252"}),
        ("a.tsv", 'no\tstory\n1\t"Once"\n2\tTwice or more\n', "a.tsv: .*set quoting = 'none'",
         {"quoting": "none"}, {**CSV, "quoting": "none"}),
        ("a.txt", "吾輩は猫である".encode("shift_jis"), r"a.txt is not UTF-8 \(byte 0x8c at 0\).*--encoding",
         {"encoding": "shift_jis"}, {"format": "text"}),
        ("a.parquet.gz", CUT, "a.parquet.gz, which is damaged", None, None),
        ("a.parquet.gz", b"PAR1 is not compressed", "a.parquet.gz, which is damaged", None, None),
        *((name, content, "no record of format .* at the beginning of .*", None, None)
          for name, content in (("a.jsonl", ""), ("a.jsonl", "not json\n"), ("a.jsonl", "[1]\n"),
                                ("a.jsonl", '\x1e{"text": "a"}\n'), ("a.jsonl", '{"text": "a"},\n'),
                                ("a.parquet", ""), ("a.parquet", b"PAR1\xff"))),
        *(("a.jsonl", f'{{"{key}": [{{"role": "user", "content": "a"}}], "id": 7}}\n', f"'{key}' has chats",
           None, None) for key in ("messages", "conversations")),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_a_fix(tmp_path: Path, name, content, said, fix, seen) -> None:
    with pytest.raises(SourceError, match=said):
        sniff(tmp_path / name, content)
    if fix:
        found = sniff(tmp_path / name, **fix)
        assert found.options == {key: value for key, value in seen.items() if key in found.options}
        text = (tmp_path / name).read_text(fix.get("encoding", "utf-8"))
        assert all(document in text for document in found.documents)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_named_and_no_encoding_is_suggested(folder: Path, name: str) -> None:
    data, what = REFUSED[name]
    (folder / name).write_bytes(data)
    with pytest.raises(UsageError, match=f"init: source 's': {name} holds .*{what}") as told:
        draft(folder / "p.toml", f"s={name}")
    assert "encoding" not in str(told.value)


def test_what_is_drafted_loads_and_finds_the_same_files(folder: Path) -> None:
    for name in ("books/a.txt", "books/b.bak.txt", "books/old/c.txt", "{zh}s/a.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("பிறக்கின்றனர்", encoding="utf-8")
    (folder / "web.jsonl").write_text('{"id": 1, "content": "x"}\n')
    path, left_out = folder / "own" / "own.toml", ["*.bak.txt", "books/old"]
    sources = ("books=books/**/*.txt", "web=web.jsonl", "zh.hans={zh}s/a.txt", "books={zh}s/*.txt")
    drafted = draft(path, *sources, exclude=left_out)
    assert {one.name: one.num_files for one in drafted} == {"books": 2, "web": 1, "zh.hans": 1}
    assert 'files = ["../web.jsonl"]' in path.read_text("utf-8")  # relative to where they were typed
    profile = load_profile(path)
    books = [f"{folder}/own/../{name}/*.txt" for name in ("books/**", "{zh}s")]
    assert profile.sources["books"].files == books
    assert profile.sources["books"].exclude[0] == "*.bak.txt"
    assert profile.sources["books"].exclude[1].endswith("/../books/old")
    assert profile.sources["zh.hans"].files == [f"{folder}/own/../{{zh}}s/a.txt"]
    assert profile.sources["web"].text_column == "content"
    assert (profile.training().vocab_size, profile.pack.sequence_length) == (300, 64)
    splitter = compile_pattern(profile.training().split_pattern)  # marks stay with their letters
    assert splitter.split_text("பிறக்கின்றனர் கி") == ["பிறக்கின்றனர்", " கி"]
    (folder / "a.txt").write_bytes("猫".encode("shift_jis"))
    draft(path, "s=a.txt", reading={"encoding": "sjis"}, overwrite=True)
    assert load_profile(path).sources["s"].encoding == "shift_jis"


def test_nothing_is_overwritten_unless_forced_and_only_a_profile_is_written(folder: Path) -> None:
    (folder / "a.txt").write_text("x")
    (folder / "own.toml").write_text("mine")
    with pytest.raises(UsageError, match="--force"):
        draft(folder / "own.toml", "a=a.txt")
    assert (folder / "own.toml").read_text() == "mine"
    for source, rule in {
        "a": "name=glob",
        "=a.txt": "name=glob",
        "a b=x": "name=glob",
        "a=nothing/*.txt": "matches no file",
    }.items():
        with pytest.raises(UsageError, match=rule):
            draft(folder / "new.toml", source)
    for name in ("own", "own.json", "my own.toml"):
        with pytest.raises(UsageError):
            draft(folder / name, "a=a.txt")
    assert {path.name for path in folder.iterdir()} == {"a.txt", "own.toml"}


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.jsonl", '{"id": 1, "text": "a"}\n', "columns id, text; text by its name"),
        ("a.jsonl", '{"n": 1, "words": "a"}\n', "columns n, words; words is the only one with text"),
        ("a.json", '[{"a": "b", "words": "a b c d e f"}]', "has the longest texts, 11 characters; next is a"),
        ("a.jsonl", '{"text": "a", "messages": [{"role": "u", "content": "x"}]}\n', "messages has chats"),
        (
            "a.csv",
            'title,words\n"a\nb\nc","a long text\nwith many more lines"\n',
            "words; words has",
        ),
    ],
)
def test_a_draft_says_why(tmp_path: Path, name: str, data: str, said: str) -> None:
    assert said in sniff(tmp_path / name, data).remark


def prose(number: int, words: int = 40) -> str:
    """Return a text like no other."""
    return " ".join(f"{WORDS[number * 7 % 11]} {WORDS[(number + i * i) % 11]}" for i in range(words // 2))


WORDS = ("the", "river", "house", "under", "seven", "many", "blue", "window", "of", "bread", "slowly")
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
URL = "https://www.example.com/a/very/long/address/of/a/page/somewhere.html"
AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:{0}) Gecko/20100101 Firefox/{0}.0"
ROWS = 60
TABLES = {  # a row by its number, and the column that is right
    "squad": (lambda n: {"id": HASH[n % 9 :], "title": "New_York_City", "context": prose(n // 5, 120),
                         "question": prose(n, 8), "answers": {"text": [prose(n, 4)]}}, "context"),
    "crawl": (lambda n: {"sha": HASH, "address": URL * (n + 1), "date": "2021-03-04",
                         "licence": prose(1, 200), "page": prose(n)}, "page"),
    "long first": (lambda n: {"title": prose(n, 4 if n else 400), "words": prose(n, 4 * n + 2)}, "words"),
    "a few values": (lambda n: {"text": "en", "body": "sedan car", "passage": prose(n)}, "passage"),
    "sums": (lambda n: {"text": f"{n} + 1 = {n + 1}", "said": prose(n)}, "text"),
    "bytes as text": (lambda n: {"lines": base64.encodebytes(bytes(range(256)) * 2).decode(),
                                 "hex": f"{n:04x} {bytes(range(99)).hex(' ')}", "agent": AGENT.format(n),
                                 "date": f"Mon Apr {n % 30:02} 22:19:45 PDT 20{n:02}",
                                 "caption": prose(n, 6)}, "caption"),
    "commits": (lambda n: {"message": prose(n, 6), "diff": prose(n, 90)}, "diff"),
    "thai": (lambda n: {"key": f"th-{n}", "page": "ภาษาไทยเป็นภาษา" * (n + 1)}, "page"),
    "name with lines": (lambda n: {"a\n[x]\x7f": prose(n), "b": n}, "a\n[x]\x7f"),
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_decide_which_column_is_the_text(folder: Path, table: str) -> None:
    make, column = TABLES[table]
    rows = [make(number) for number in range(ROWS)]
    write_rows(folder / "a.jsonl", rows)
    written_as_parquet(folder / "a.parquet", rows, row_group_size=20)
    for suffix in ("jsonl", "parquet"):
        (drafted,) = draft(folder / "own.toml", f"s=a.{suffix}", overwrite=True)
        assert load_profile(folder / "own.toml").sources["s"].text_column == column
        assert drafted.seen.documents == tuple(beginning(rows[index][column]) for index in (0, ROWS - 1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda n: {"repository_name": "a/b", "whole": f"def {prose(n)}", "code": f"def {prose(n, 38)}"},
         r"'whole' \(\d+ characters, as 'def [^']*'\); 'code' .*--text-column s=whole"),
        (lambda n: {"instruction": prose(n, 6), "output": prose(n, 90)}, "'output'.*'instruction'"),
        (lambda n: {"title": prose(n, 8), "answers": [{"text": prose(n, 90)}]},
         "'answers' has lists of objects.*s=title"),
        (lambda n: {"id": HASH, "text": {"en": prose(n)}}, r"'text' has objects.*columns: id, text"),
        (lambda n: {"title": prose(n, 8), "text": [prose(n), "b"]}, "'text' has lists"),
        (lambda n: {"questions": prose(n, 6), "answers": prose(n, 90)}, "'answers'.*'questions'"),
        (lambda n: {"id": HASH, "n": n}, "'id' has ids, numbers.*, 'n' has no text.*--text-column s=id"),
        (lambda n: {"text": "a b", "n": n}, "'text' has a few texts again and again.*--text-column s=text"),
    ],
)  # fmt: skip
def test_where_several_or_none_may_be_the_text_nothing_is_written(folder: Path, make, said: str) -> None:
    write_rows(folder / "a.jsonl", map(make, range(ROWS)))
    with pytest.raises(UsageError, match=rf"^init: source 's': a\.jsonl: .*{said}"):
        draft(folder / "own.toml", "s=a.jsonl")
    assert not (folder / "own.toml").exists()


def test_the_user_may_name_the_column(folder: Path) -> None:
    write_rows(folder / "a.jsonl", [{"question": prose(1), "answer": prose(2), "n": 1}])
    for wrong, said in (("answer", "source=column"), ("s=n", "'n' has no text"), ("s=x", "no row has")):
        with pytest.raises(UsageError, match=said):
            draft(folder / "own.toml", "s=a.jsonl", text_columns=[wrong])
    draft(folder / "own.toml", "s=a.jsonl", text_columns=["s=answer"])
    assert load_profile(folder / "own.toml").sources["s"].text_column == "answer"


def test_files_without_the_column_are_named_with_a_fix(folder: Path) -> None:
    names = ("a/0.jsonl", "b/0.jsonl", "b/[1].jsonl", "b/*.jsonl", "b/2.jsonl")
    for number, name in enumerate(names):
        write_rows(folder / name, [{"content" if name in names[::4] else "other": prose(number)}])
    with pytest.raises(UsageError, match=r"and 2 others .* no column 'content', which .*a/0") as error:
        draft(folder / "own.toml", "s=*/*.jsonl")
    options = shlex.split(str(error.value).partition(" with ")[2].partition(", or")[0])
    (drafted,) = draft(folder / "own.toml", "s=*/*.jsonl", exclude=options[1::2])
    assert drafted.num_files == len(names[::4])


def test_a_column_named_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a b c"])] * 2, names=["words", "words"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="text_column='words' names 2 of its columns"):
        sniff(tmp_path / "a.parquet")


def test_a_large_row_group_is_not_read_whole(tmp_path: Path) -> None:
    rows = [{"text": f"{number} {os.urandom(2000).hex()}"} for number in range(8000)]
    written_as_parquet(tmp_path / "a.parquet", rows, use_dictionary=False)
    pool, default = pa.system_memory_pool(), pa.default_memory_pool()
    peak = pool.max_memory()
    pa.set_memory_pool(pool)
    try:
        sniff(tmp_path / "a.parquet")
    finally:
        pa.set_memory_pool(default)
    assert pool.max_memory() - peak < 16 << 20
