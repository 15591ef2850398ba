"""Ingest end to end: real files of every format and compression, bad documents, accounts, determinism."""

import io
import json
import random
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.test_tasks.reading import COMPRESSORS, documents, files_in, ingested, written
from tokmill.tasks.core.errors import DocumentError, SourceError
from tokmill.tasks.formats.text.shards import read_shard
from tokmill.tasks.ingest.stage import IngestParams, run

DOCUMENTS = ["first", "", "zweites 🙂\nmit Zeilen", 'a "quoted", one', "x" * 300]


@pytest.mark.parametrize("compression", COMPRESSORS)
@pytest.mark.parametrize("file_format", ["jsonl", "csv", "parquet", "arrow"])
def test_every_format_in_every_compression(tmp_path: Path, file_format: str, compression: str) -> None:
    path = tmp_path / f"a.{file_format}{compression}"
    path.write_bytes(COMPRESSORS[compression](written(file_format, DOCUMENTS)))

    made = ingested(tmp_path, {"s": {"files": ["a.*"], "id_column": "id"}})

    assert documents(made, "s") == [text.encode() for text in DOCUMENTS]
    (shard,) = made.corpus.shards("s")
    (batch,) = read_shard(shard, made.roots)
    assert batch.ids.to_pylist() == ["0", "1", "2", "3", "4"]
    # Golden: the same documents are the same shard, however they lie on the disk.
    assert shard.digest == "91359e881ef9b72833177b1d27ef8463e2e6e18195118ba18542fc8a3009e438"


def test_a_tiny_corpus_by_hand(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_bytes(
        b'{"text": "caf\\u00e9 au lait"}\n\nbroken\n{"text": ""}\n{"text": null}\n'
    )
    (tmp_path / "a.jsonl").write_bytes(b'{"no": 1}\n{"text": "one two"}\n')
    (tmp_path / "c.jsonl").write_bytes(b"")

    made = ingested(tmp_path, {"s": {"files": ["*.jsonl"], "on_error": "quarantine"}})

    reasons = dict.fromkeys(("broken_json", "missing_column", "null_text"), 1)
    sizes = {"num_documents": 3, "num_bytes": 20, "num_chars": 19, "num_words": 5, "num_shards": 1}
    sizes |= {"num_files": 3, "num_files_without_documents": 1, "num_quarantined": 3}
    assert made.corpus.source_stats("s").model_dump() == {**sizes, "quarantined": reasons}
    (account,) = made.outcome.accounts
    assert account.balanced
    assert (account.num_in, account.unit) == (6, "documents")
    assert account.became == {"kept": 3, **{f"quarantined:{reason}": 1 for reason in reasons}}
    quarantine = made.corpus.table("quarantine").to_pylist()
    assert [(bad["file"], bad["row"], bad["reason"], bad["excerpt"]) for bad in quarantine] == [
        ("a.jsonl", 0, "missing_column", '{"no": 1}'),
        ("b.jsonl", 2, "broken_json", "broken"),
        ("b.jsonl", 4, "null_text", '{"text": null}'),
    ]
    (shard,) = made.corpus.shards("s")
    (batch,) = read_shard(shard, made.roots)
    assert batch.documents() == [b"one two", "café au lait".encode(), b""]
    assert batch.ordinals.tolist() == [0, 1, 4]
    assert [made.corpus.lookup("s", 0, ordinal) for ordinal in batch.ordinals.tolist()] == [
        ("a.jsonl", 1),
        ("b.jsonl", 0),
        ("b.jsonl", 3),
    ]
    files = made.corpus.table("files").to_pylist()
    assert [(file["name"], file["num_documents"], file["num_quarantined"]) for file in files] == [
        ("a.jsonl", 1, 1),
        ("b.jsonl", 2, 2),
        ("c.jsonl", 0, 0),
    ]


OK = b'{"text": "ok"}\n'
CUT = COMPRESSORS[".gz"](b"ok\n" * 50_000) + COMPRESSORS[".gz"](b"ok\n")[:-4]
BAD = [
    ("broken_json", "a.jsonl", OK + b'{"text": "unfini\n', 1, "or element must be one JSON value"),
    ("not_an_object", "a.jsonl", OK + b'["list"]\n', 1, "every line must be a JSON object"),
    ("missing_column", "a.jsonl", OK + b'{"body": "x"}\n', 1, "must have the text column"),
    ("null_text", "a.jsonl", OK + b'{"text": null}\n', 1, "must not be null"),
    ("not_text", "a.jsonl", OK + b'{"text": 5}\n', 1, "must be a string"),
    ("invalid_utf8", "a.txt", b"ok\nca\xe9\n", 1, "must be valid UTF-8"),
    ("broken_csv", "a.csv", b'id,text\n1,ok\n2,"open\n', 1, "as many fields"),
    ("syntax_error", "a.py", b"def (:\n", 0, "must parse"),
    ("truncated_archive", "a.txt.gz", CUT, 50_000, "must be complete"),
    ("truncated_archive", "a.txt.zst", b"", 0, "is empty"),
    ("broken_archive", "a.txt.xz", b"\xfd7zXZ\0 not at all", 0, "must decompress"),
    ("broken_file", "a.parquet", b"PAR1 and no more", 0, "must be readable to its end"),
    ("broken_file", "a.arrow", b"", 0, "is empty"),
]


@pytest.mark.parametrize(("reason", "name", "data", "row", "words"), BAD)
def test_bad_documents_fail_with_file_row_value_rule_and_fix_or_are_quarantined(
    tmp_path: Path, reason: str, name: str, data: bytes, row: int, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    chosen = "prose" if name == "a.py" else "lines" if ".txt" in name else "auto"
    spec = {"files": ["a.*"], "format": chosen}
    counting = f"line {row + 1}" if chosen == "lines" or name == "a.jsonl" else "counted from 0"
    message = (
        rf"^source 'src': {name}, row {row} \({counting}\): {reason} \(.*{words}.*on_error = 'quarantine'$"
    )
    with pytest.raises(DocumentError, match=message):
        ingested(tmp_path, {"src": spec}, out="failed")
    assert not list((tmp_path / "failed").iterdir())

    made = ingested(tmp_path, {"src": {**spec, "on_error": "quarantine"}})

    assert documents(made, "src") == [b"ok"] * row
    (bad,) = made.corpus.table("quarantine").to_pylist()
    assert (bad["source"], bad["file"], bad["row"], bad["reason"]) == ("src", name, row, reason)
    assert made.corpus.source_stats("src").num_files_without_documents == 0
    (account,) = made.outcome.accounts
    assert account.balanced
    assert account.became == {"kept": row, f"quarantined:{reason}": 1}


ROWS = pd.DataFrame({"text": ["some words", 'two\nlines, "quoted"'], "id": [1, 2]})
LINES = ROWS.to_json(orient="records", lines=True).encode()
ARRAY = ROWS.to_json(orient="records").encode()


def in_tar(data: bytes) -> bytes:
    """The bytes of a tar archive of one file."""
    member, sink = tarfile.TarInfo("a.txt"), io.BytesIO()
    member.size = len(data)
    with tarfile.open(fileobj=sink, mode="w") as archive:
        archive.addfile(member, io.BytesIO(data))
    return sink.getvalue()


HELD = {
    "lines.json": (LINES, "jsonl", None),
    "c4-train.00000-of-01024.json.gz": (COMPRESSORS[".gz"](LINES), "jsonl", "gz"),
    "part-00000": (LINES, "jsonl", None),
    "lines.txt": (LINES, "jsonl", None),
    "one_line.txt": (LINES.splitlines()[0], "jsonl", None),
    "array.jsonl": (ARRAY, "json", None),
    "written_over_lines.jsonl": (json.dumps(json.loads(ARRAY), indent=2).encode(), "json", None),
    "table.txt": (b"id\ttext\n1\tsome words\n", "csv", None),
    "gzip.jsonl": (COMPRESSORS[".gz"](LINES), "jsonl", "gz"),
    "zstd.json": (COMPRESSORS[".zst"](LINES), "jsonl", "zst"),
    "bzip2": (COMPRESSORS[".bz2"](LINES * 20_000), "jsonl", "bz2"),
    "downloaded.jsonl.gz": (LINES, "jsonl", None),
    "parquet.txt": (ROWS.to_parquet(), "parquet", None),
    "parquet.jsonl.gz": (COMPRESSORS[".gz"](ROWS.to_parquet()), "parquet", "gz"),
    "settings.txt": (b'{"a": 1}\n', "text", None),
    "orcs.txt": (b"ORC\nPARENT\n", "text", None),
    "prose.txt": (b"[1] A note.\n{2} Another.\n", "text", None),
    "text.pdf": (b"Extracted text.\n", "text", None),
    # that begins as what is no text does
    "gif.txt": (b"GIF89a is an image.", "text", None),
    "pdf.txt": (b"%PDF-1.7 is the newest.", "text", None),
    "warc.txt": (b"WARC/1.0\nis a header.", "text", None),
    "sound.txt": (b"ID3 tags", "text", None),
    "rtf.txt": (b"{\\rtf!}", "text", None),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_file_holds_decides_before_its_name(tmp_path: Path, name: str) -> None:
    data, file_format, compression = HELD[name]
    (tmp_path / name).write_bytes(data)

    made = ingested(tmp_path, {"s": {"files": [name]}})

    (file,) = made.corpus.table("files").to_pylist()
    assert (file["format"], file["compression"]) == (file_format, compression)
    assert documents(made, "s")[0] == (data if file_format == "text" else b"some words")


WEB_PAGES, LFS = (
    b"WARC/1.0\r\nWARC-Type: warcinfo\r\n\r\n",
    b"version https://git-lfs.github.com/spec/v1\noid sha",
)
REFUSED = {
    "a.warc.gz": (COMPRESSORS[".gz"](WEB_PAGES), "WARC"),
    "wiki.xml.bz2": (COMPRESSORS[".bz2"](b'<mediawiki xml:lang="en">' * 60_000), "MediaWiki"),
    "a.tar": (in_tar(b"text"), "tar archive"),
    "b.tgz": (COMPRESSORS[".gz"](in_tar(b"text")), "tar archive"),
    "a.docx": (b"PK\x03\x04\x14", "ZIP archive"),
    "a.pdf": (b"%PDF-1.7\n", "PDF"),
    "b.txt": (b"SQLite format 3\0\x10", "SQLite"),
    "scan.txt": (b"\x89PNG\r\n\x1a\n\0\0", "PNG image"),
    "b.jsonl.gz": (LFS, "Git LFS"),
    "twice.json.gz": (COMPRESSORS[".gz"](COMPRESSORS[".gz"](LINES)), "compressed twice"),
    "old.lz4": (b"\x02\x21\x4c\x18\0\0", "unsupported compression"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_named_and_never_text(tmp_path: Path, name: str) -> None:
    data, what = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.txt").write_text("good")

    for options in ({}, {"format": "text", "encoding": "latin-1"}):
        with pytest.raises(DocumentError, match=f"{name}: unsupported_format .*{what}.*exclude"):
            ingested(tmp_path, {"s": {"files": [name], **options}}, out=f"failed-{len(options)}")
    made = ingested(tmp_path, {"s": {"files": ["*.*"], "on_error": "quarantine"}})

    assert documents(made, "s") == [b"good"]
    (bad,) = made.corpus.table("quarantine").to_pylist()
    assert (bad["file"], bad["reason"]) == (name, "unsupported_format")
    assert what in bad["detail"]


def test_the_first_bad_document_in_order_is_named_for_any_number_of_workers(tmp_path: Path) -> None:
    for number in range(40):
        bad = b"\xff\n" if number in (17, 18, 35) else b"fine\n"
        (tmp_path / f"{number:02d}.txt").write_bytes(b"fine\n" * (4000 if number == 17 else 1) + bad)

    for workers in (1, 2, 8):
        with pytest.raises(DocumentError, match=r"17\.txt, row 4000 "):
            ingested(
                tmp_path, {"s": {"files": ["*.txt"], "format": "lines"}}, out=str(workers), workers=workers
            )


def large_corpus(folder: Path) -> dict[str, dict[str, Any]]:
    """Three sources with large and small files; about 3 MB."""
    chance = random.Random(1)
    texts = [f"{number} " + "word " * chance.randrange(200) for number in range(2500)]
    (folder / "big.jsonl").write_bytes(written("jsonl", texts))
    (folder / "big.jsonl.zst").write_bytes(COMPRESSORS[".zst"](written("jsonl", texts)))
    (folder / "big.parquet").write_bytes(written("parquet", texts, rows=300))
    (folder / "small").mkdir()
    for number in range(300):
        (folder / f"small/{number}.txt").write_text(texts[number])
    return {
        "json": {"files": ["big.jsonl"]},
        "zstd": {"files": ["big.jsonl.zst"]},
        "columns": {"files": ["big.parquet"]},
        "files": {"files": ["small/*.txt"]},
    }


def test_shards_hold_every_document_once_and_verify(tmp_path: Path) -> None:
    sources = large_corpus(tmp_path)

    made = ingested(tmp_path, sources)

    everything = documents(made, "json", batch_bytes=1000)
    assert everything == documents(made, "json") == documents(made, "columns") == documents(made, "zstd")
    assert len(everything) == 2500
    assert sorted(documents(made, "files")) == sorted(everything[:300])
    assert min(len(made.corpus.shards(source)) for source in made.corpus.sources) > 1
    digests = [[shard.digest for shard in made.corpus.shards(source)] for source in ("json", "columns")]
    assert digests[0] == digests[1]
    for source in made.corpus.sources:
        shards = made.corpus.shards(source)
        stats = made.corpus.source_stats(source)
        assert [shard.index for shard in shards] == list(range(len(shards)))
        assert sum(shard.num_documents for shard in shards) == stats.num_documents
        assert sum(shard.num_bytes for shard in shards) == stats.num_bytes


def test_the_same_bytes_for_any_number_of_workers_and_in_any_place(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "over" / "there"
    here.mkdir()
    sources = large_corpus(here)
    shutil.copytree(here, there)

    first = files_in(ingested(here, sources, out="one", workers=1).corpus.path)
    again = files_in(ingested(here, sources, out="many", workers=7).corpus.path)
    moved = files_in(ingested(there, sources, workers=3).corpus.path)

    assert first == again == moved
    assert not [name for name, data in first.items() if str(tmp_path).encode() in data]


def test_text_that_changed_since_ingest_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(written("jsonl", DOCUMENTS))
    made = ingested(tmp_path, {"s": {"files": ["a.jsonl"]}})
    (shard,) = made.corpus.shards("s")

    for texts in (["First", *DOCUMENTS[1:]], [*DOCUMENTS[1:], DOCUMENTS[0]], DOCUMENTS[:-1]):
        (tmp_path / "a.jsonl").write_bytes(written("jsonl", texts))
        with pytest.raises(SourceError, match=r"shard s/0 \(a\.jsonl\) changed since ingest; run again"):
            list(read_shard(shard, made.roots))

    (tmp_path / "a.jsonl").write_bytes(written("jsonl", DOCUMENTS))
    assert documents(made, "s") == [text.encode() for text in DOCUMENTS]
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(SourceError, match=r"shard s/0: .*a\.jsonl cannot be read \(No such file"):
        list(read_shard(shard, made.roots))
    with pytest.raises(SourceError, match=r"no folder was given for source 's'; known are t"):
        list(read_shard(shard, {"t": "/"}))


def test_a_file_that_changes_between_finding_and_reading_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    made = ingested(tmp_path, {"s": {"files": ["a.txt"]}})
    (tmp_path / "a.txt").write_text("other text")
    (tmp_path / "again").mkdir()
    params = IngestParams(sources={"s": made.corpus.manifest.sources[0].options})

    with pytest.raises(SourceError, match=r"a\.txt changed while it was read; run again"):
        run(params, out=tmp_path / "again", files=[file.value for file in made.files])
