"""Source specifications, and finding files: globs, placeholders, links, duplicates."""

import json
import os
import re
import socket
import sysconfig
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pydantic import ValidationError

from tests.test_tasks.reading import PlainDigests, read
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.globs import matches, parse
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.formats.text.walk import expand


def make(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def names(folder: Path, *files: str, exclude: tuple[str, ...] = (), **options: Any) -> list[str]:
    spec = SourceSpec(files=list(files), exclude=list(exclude), format="text", **options)
    found, root = resolve_files(spec, folder, PlainDigests(), source="s")
    assert all(Path(root, one.value["name"]).samefile(one.value["path"]) for one in found)
    return [one.value["name"] for one in found]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.txt", ["a.txt"]),
        ("**/*.txt", ["a.txt", "d/b.txt", "d/e/c.txt"]),
        ("*/*.txt", ["d/b.txt"]),
        ("d/**/c.*", ["d/e/c.txt"]),
        ("d/**", ["d/b.md", "d/b.txt", "d/e/c.txt"]),
        ("**/e/**/*.txt", ["d/e/c.txt"]),
        ("**/**/*.md", ["d/b.md"]),
        ("?.txt", ["a.txt"]),
        ("[!a]/*.txt", ["d/b.txt"]),
        ("d/b.txt", ["d/b.txt"]),
        ("./d/../a.txt", ["a.txt"]),
        ("**/.hidden/*", ["d/.hidden/x.txt"]),
        (".*.txt", [".dot.txt"]),
        ("**/**/**/**/**/**/**/**/**/**/**/**/d*/**/b.txt", ["d/b.txt"]),
    ],
)
def test_patterns_by_hand(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    make(tmp_path, "a.txt", "d/b.txt", "d/b.md", "d/e/c.txt", "d/.hidden/x.txt", ".dot.txt")

    found = [path.relative_to(tmp_path).as_posix() for path in expand(parse(pattern, tmp_path))]

    assert sorted(found) == expected
    assert len(set(found)) == len(found)


def test_the_root_does_not_move_when_files_come(tmp_path: Path) -> None:
    make(tmp_path, "data/deep/down/a.txt")
    assert names(tmp_path, "data/**/*.txt") == ["deep/down/a.txt"]

    make(tmp_path, "data/b.txt")
    assert names(tmp_path, "data/**/*.txt") == ["b.txt", "deep/down/a.txt"]


def test_exclusion(tmp_path: Path) -> None:
    make(tmp_path, "test/data/a.txt", "test/data/b/1.txt", "test/data/b/2.txt", "test/data/c.md")
    for exclude in ("b", "b/", "data/b/**", "data/b/*.txt", "data/b", "[0-9]*.txt"):
        assert names(tmp_path / "test", "data/**", exclude=(exclude,)) == ["a.txt", "c.md"]
    kept = names(tmp_path / "test", "data/**", exclude=("*.md", "test"))  # but for names above the root
    assert kept == ["a.txt", "b/1.txt", "b/2.txt"]
    with pytest.raises(SourceError, match=r"'test/data/\*\.txt': 'exclude' removes the file"):
        names(tmp_path, "test/data/*.txt", exclude=("*.txt",))


def test_a_folder_with_brackets_in_its_name(tmp_path: Path) -> None:
    make(
        tmp_path,
        "run[1]/data[24]/a.txt",
        "run[1]/data2/b.txt",
        "run1/data[24]/c.txt",
        "run[1]/d.txt",
        "who?/e.txt",
    )

    assert names(tmp_path / "run[1]", "data[24]/*.txt") == ["a.txt"]
    assert names(tmp_path / "run[1]", "data[2]/*.txt") == ["data2/b.txt"]
    assert names(tmp_path, "run[1]/**", exclude=("data[24]",)) == ["d.txt"]
    assert names(tmp_path / "who?", "*.txt") == ["e.txt"]


def test_the_standard_library_is_without_installed_packages() -> None:
    found = names(Path.cwd(), "{stdlib}/**/*.py")

    assert "json/decoder.py" in found
    assert not [name for name in found if "site-packages" in name or "dist-packages" in name]


def test_a_second_name_in_the_standard_library_is_left_out(tmp_path: Path, monkeypatch: Any) -> None:
    make(tmp_path, "lib/data.py", "elsewhere.py")
    (tmp_path / "lib" / "data_again.py").symlink_to("data.py")
    (tmp_path / "lib" / "site.py").symlink_to(tmp_path / "elsewhere.py")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "lib"))

    assert names(tmp_path, "{stdlib}/**/*.py") == ["data.py", "site.py"]
    with pytest.raises(SourceError, match="are the same file"):
        names(tmp_path, "lib/*.py")


def test_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    make(tmp_path, "data/a/x.txt", "data/b/y.txt", "elsewhere/z.txt", "file.txt")
    links = {"a/up": "data", "a/self": "data/a", "linked": "elsewhere", "one.txt": "file.txt"}
    for link, target in links.items():
        (tmp_path / "data" / link).symlink_to(tmp_path / target)

    assert names(tmp_path, "data/**/*.txt") == ["a/x.txt", "b/y.txt", "linked/z.txt", "one.txt"]


def test_a_file_found_twice_is_named_twice(tmp_path: Path) -> None:
    make(tmp_path, "data/a.txt")
    with pytest.raises(SourceError, match=r"a\.txt matches both 'data/\*\.txt' and 'data/a\*'"):
        names(tmp_path, "data/*.txt", "data/a*")

    (tmp_path / "data/b.txt").hardlink_to(tmp_path / "data/a.txt")
    assert names(tmp_path, "data/*.txt") == ["a.txt", "b.txt"]  # as a copy is

    (tmp_path / "data/c.txt").symlink_to("a.txt")
    with pytest.raises(SourceError, match=r"source 's': a\.txt and c\.txt are the same file"):
        names(tmp_path, "data/*.txt")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("data/*.md", r"'data/\*\.md' matches no file \(.*data holds a\.txt; relative paths start from"),
        ("none/*.md", r"'none/\*\.md' matches no file \(there is no folder .*none;"),
        ("data[3]/*.txt", r"matches no file .*\[\[\] for a bracket"),
        ("data", r"'data' is a folder; .*e\.g\. data/\*\*/\*\.txt"),
        ("rows", r"'rows' is a folder; .*e\.g\. rows/\*\*/\*\.jsonl\.gz"),
        ("*.txt", r"matches no file \(.*holds data/, rows/;"),
        ("rows/S*", r"matches only what may not be data, by its name \(S\.crc\); .*hidden = 'include'"),
        ("{stdlb}/a.py", r"there is no placeholder \{stdlb\}; did you mean \{stdlib\}\?"),
        ("{what}/a.py", r"known are \{stdlib\}, \{samples\}"),
        ("~no-such-user-here/a.txt", r"write the folder in full"),
        ("  ", r"an empty pattern names no file"),
    ],
)
def test_patterns_that_match_nothing(tmp_path: Path, pattern: str, message: str) -> None:
    make(tmp_path, "data/a.txt", "rows/a.jsonl.gz", "rows/S.crc", "rows/.b.crc")

    with pytest.raises(SourceError, match=r"^source 's': .*" + message):
        names(tmp_path, pattern)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("x")
    except OSError:
        pytest.skip("the file system takes no such name")

    with pytest.raises(SourceError, match=r"is not UTF-8; rename the file"):
        names(tmp_path, "*.txt")


def test_identity_is_source_name_and_content(tmp_path: Path) -> None:
    make(tmp_path, "a.txt")
    spec = SourceSpec(files=["*.txt"])

    def digest(source: str) -> str:
        ((found,), _) = resolve_files(spec, tmp_path, PlainDigests(), source=source)
        return found.digest

    before = digest("s")
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    assert digest("s") == before != digest("t")
    (tmp_path / "a.txt").write_text("b.txt")
    assert digest("s") != before
    (tmp_path / "a.txt").write_text("a.txt")
    assert digest("s") == before
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    assert digest("s") != before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"format": "delimited"}, "needs a delimiter"),
        ({"format": "lines", "delimiter": ","}, "is not used by format='lines'"),
        ({"format": "csv", "delimiter": "::"}, "must be one ASCII character"),
        ({"format": "text", "id_column": "id"}, "is not used by format='text'"),
        ({"format": "excel"}, "Input should be"),
        ({"on_error": "ignore"}, "Input should be"),
        ({"columns": ("id", "body")}, r"columns=\['id', 'body'\] must name 'text', too"),
        ({"format": "lines", "quoting": "none"}, "quoting='none' is not used by format='lines'"),
        ({"text_colum": "a"}, "Extra inputs are not permitted"),
        ({"files": []}, "at least 1 item"),
    ],
)
def test_invalid_specifications(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SourceSpec(**{"files": ["a"], **given})


@pytest.mark.parametrize(
    ("pattern", "found", "said"),
    [
        ("**/*.md", ["a.md", "d/b.md"], "2 files and 1 folder that .* (.c.md, ..md, .git)"),
        ("*.md", ["a.md"], "1 file that .* (.c.md)"),
        ("d/*.md", ["d/b.md"], "1 file that .* (..md)"),
        ("**/.*.md", [".c.md", "d/..md"], "1 folder that .* (.git)"),
        ("a.*", ["a.md"], ""),
    ],
)
def test_hidden_files_are_counted_in_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pattern: str, found: list[str], said: str
) -> None:
    make(tmp_path, "a.md", ".c.md", ".d.txt", "d/b.md", "d/..md", ".git/x.md")

    names(tmp_path, pattern)

    assert [path.name for path in expand(parse(pattern, tmp_path))] == [Path(name).name for name in found]
    text = re.escape(said).replace(r"\.\*", ".*")
    assert re.search(text, caplog.text) if said else not caplog.text


def test_what_programs_keep_beside_data_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = ["part-0.jsonl", "_p=1/part-1.jsonl.gz", "src/__init__.py", "_posts/a.md"]
    beside = [
        "_SUCCESS",
        "_x.txt",
        "_old/y.jsonl",
        "_temporary/0/part-0.py",
        "a.jsonl.bak",
        "a.jsonl~",
        "b.PART",
    ]
    make(tmp_path, *data, *beside)

    assert names(tmp_path, "**") == sorted(data)
    assert "skipped 5 files and 2 folders that may not be data" in caplog.text
    assert names(tmp_path, "_temporary/**/*.py", "_old/*", "**/*.bak") == [beside[i] for i in (2, 3, 4)]
    assert names(tmp_path, "_*/*.jsonl", "_x*") == ["_old/y.jsonl", "_x.txt"]
    assert names(tmp_path, "**", hidden="include") == sorted([*data, *beside])


def lake(folder: Path, *commits: list[dict[str, object]]) -> None:
    """Write the log of a Delta table."""
    for number, actions in enumerate(commits):
        path = folder / "_delta_log" / f"{number:020}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def added(path: str, **more: object) -> dict[str, object]:
    return {"add": {"path": path, **more}}


def test_files_that_the_log_of_a_delta_table_removes_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, "d/p=1/a.txt", "d/p=1/b.txt", "d/p=%2F/c.txt", "d/stray.txt", "other.txt")
    lake(
        tmp_path / "d",
        [{"protocol": {}}, added("p=1/a.txt"), added("p=1/b.txt")],
        [{"remove": {"path": "p=1/a.txt"}}, added("p=%252F/c.txt")],
    )

    assert names(tmp_path, "**") == ["d/p=%2F/c.txt", "d/p=1/b.txt", "other.txt"]
    assert "skipped 2 files that the log of the Delta table" in caplog.text
    assert names(tmp_path, "d/p=1/*") == ["b.txt"]
    assert names(tmp_path, "d/p=1/a.txt") == ["a.txt"]  # by its name
    assert "d/p=1/a.txt" in names(tmp_path, "**", hidden="include")
    assert names(tmp_path, "**", exclude=("d",)) == ["other.txt"]
    with pytest.raises(SourceError, match="only files that the logs of their tables remove"):
        names(tmp_path, "d/p=1/a*")


def test_the_checkpoint_of_a_delta_table_stands_for_the_commits_before(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "b.txt", "c.txt")
    lake(tmp_path, [], [], [added("c.txt")])
    log = tmp_path / "_delta_log"
    rows = [{"add": {"path": "a.txt"}, "remove": None}, {"add": None, "remove": {"path": "b.txt"}}]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), log / f"{1:020}.checkpoint.parquet")
    (log / f"{0:020}.json").unlink()

    assert names(tmp_path, "*.txt") == ["a.txt", "c.txt"]


@pytest.mark.parametrize(
    ("files", "commits", "message"),
    [
        ((), ([added("a.txt", deletionVector={"storageType": "u"})],), "deleted rows that still are in"),
        *(
            ((), ([added(path)],), "has files elsewhere")
            for path in ("s3://other/a.txt", "../a.txt", "data/%2e%2e/../../a.txt", "/a.txt", "file:/a.txt")
        ),
        *(
            ((), ([action],), "the log of this Delta table cannot be read")
            for action in ([1], {"add": 5}, added(5), added("a.txt", deletionVector="u"))
        ),
        (("_delta_log/00000000000000000003.json",), ([],), "00000000000000000001.json is missing"),
        (("_delta_log/_last_checkpoint",), (), "it has no commit"),
        ((f"_delta_log/{1:020}.checkpoint.parquet",), (), r"\(0*1\.checkpoint\.parquet: "),
        ((".hoodie/hoodie.properties",), (), "is a table of Iceberg or Hudi"),
        (("metadata/v1.metadata.json",), (), "is a table of Iceberg or Hudi"),
    ],
)
def test_tables_whose_files_do_not_tell_their_rows_are_refused(
    tmp_path: Path, files: tuple[str, ...], commits: tuple[list[dict[str, object]], ...], message: str
) -> None:
    make(tmp_path, "t/data/a.txt", *(f"t/{file}" for file in files))
    lake(tmp_path / "t", *commits)

    for pattern in ("**/*.txt", "t/data/*.txt"):
        with pytest.raises(SourceError, match=rf"^source 's': .*/t.*{message}.*hidden = 'include'"):
            names(tmp_path, pattern)
    assert names(tmp_path, "**/*.txt", hidden="include") == ["t/data/a.txt"]


def odd_entries(folder: Path) -> Iterator[tuple[str, str]]:
    """Make a FIFO, a socket and a link to a device, and yield the kind and the name of each."""
    os.mkfifo(folder / "pipe.txt")
    yield "a FIFO", "pipe.txt"
    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(os.path.relpath(folder / "socket.txt"))  # a socket's path must be short
    yield "a socket", "socket.txt"
    (folder / "zero.txt").symlink_to("/dev/zero")
    yield "a device", "zero.txt"


def test_a_pattern_matches_at_any_depth() -> None:
    assert matches(("**", "*.txt"), ("d",) * 2000 + ("a.txt",))


def test_irregular_files_are_refused_by_name_and_skipped_by_wildcards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = list(odd_entries(tmp_path))
    make(tmp_path, "a.txt")

    for kind, name in odd:
        with pytest.raises(SourceError, match=f"{name} is {kind}; "):
            names(tmp_path, name)
        with pytest.raises(SourceError, match=f"{name} is {kind}"):
            read(tmp_path / name)
    assert names(tmp_path, "*.txt") == ["a.txt"]
    assert "skipped 3 entries (pipe.txt, socket.txt, zero.txt)" in caplog.text
