"""`tokmill.Store` and `tokmill.run` from Python: tables, artifacts, displays."""

import json
import pickle
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tokmill
from tests.object_server import Bucket
from tokmill.flows.errors import ProfileError, UsageError
from tokmill.flows.library.api import FinishedRun
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.rows import as_json
from tokmill.tasks.store.runs import Begun, read_run, run_path

NASTY = "<script>alert('x')</script>&\"日本"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two sources, one of them with markup in its text."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"{NASTY} {name} is some text about {name}\n" * 60, "utf-8")
    return folder


@pytest.fixture(scope="module")
def done(folder: Path) -> FinishedRun:
    """A run of a profile that is a dict."""
    sources = {name: {"files": [str(folder / f"{name}.txt")], "format": "lines"} for name in ("one", "two")}
    table = {"name": "tiny", "sources": sources, "train": {"vocab_size": 290}}
    return tokmill.run(table, store=folder / "store", prefect=False, pack={"sequence_length": 16})


def test_a_run_has_artifacts_with_paths_and_figures(done: FinishedRun) -> None:
    packed = done["packed"]
    assert packed.reference == "packed/tiny@v1"
    assert (packed.path / "packed.json").is_file()
    assert packed.figures["sequence_length"] == done.figures["packed"]["sequence_length"] == 16
    assert done.paths["tokenizer"] == done["tokenizer"].path
    assert "card" in done
    assert "corpus/tiny@v1" in repr(done.store.lineage("packed/tiny"))
    assert "packed/tiny@v1" in done["corpus"].lineage("down").to_tree()
    assert [row["how"] for row in done.tasks] == ["made"] * done.num_made
    with pytest.raises(KeyError, match="it made corpus"):
        done["nothing"]


ODD = {"name": "own", "sources": {"web": {"files": ["x"]}}, "train": {"special_tokens": {"<|a|>"}}}
LARGE = {"name": "own", "sources": {"web": {"files": ["x"]}}, "train": {"vocab_size": 290}}


@pytest.mark.parametrize(
    ("profile", "sections", "said"),
    [
        ("smoke", {"pakc": {"sequence_length": 64}}, r"pakc.*did you mean pack"),
        ("smoke", {"pack": {"sequence_length": 0}}, r"pack\.sequence_length=0"),
        ({"name": "none"}, {}, "sources is missing"),
        (ODD, {}, r"train\.special_tokens is a set"),  # which has no order
        (LARGE, {"mix": {"total_tokens": 2**64}}, r"mix\.total_tokens: the number has \d+ bits; use one of"),
        (LARGE, {"overrides": {"mix.total_tokens": 10**400}}, r"mix\.total_tokens: the number has \d+ bits"),
    ],
)
def test_what_no_file_could_say_is_refused_before_anything_is_recorded(
    tmp_path: Path, profile: Any, sections: dict[str, Any], said: str
) -> None:
    with pytest.raises((ProfileError, UsageError), match=said):
        tokmill.run(profile, store=tmp_path / "store", prefect=False, **sections)
    assert not (tmp_path / "store").exists()


def test_sections_and_settings_are_keywords(done: FinishedRun, folder: Path) -> None:
    again = tokmill.run(
        done.profile, store=str(folder / "store"), prefect=False, until="tokenizer", workers=1
    )
    assert (list(again), again.num_made) == (["corpus", "counts", "balance", "tokenizer"], 0)
    assert tokmill.run("smoke", store=folder / "smoke", prefect=False, until="corpus").profile.name == "smoke"
    with pytest.raises(UsageError, match="is loaded already"):
        tokmill.run(done.profile, pack={"sequence_length": 64})


def test_values_of_python_are_what_a_file_would_say(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    names = ["one.txt"]
    files = (names, ("one.txt",), [Path("one.txt")], pd.Series(names), np.array(names))
    sizes = (290, np.int64(290), 290, 290, 290)
    runs = [
        tokmill.run(
            {
                "name": "own",
                "sources": {"web": {"files": each, "format": "lines"}},
                "train": {"vocab_size": size},
            },
            store=tmp_path / "store",
            prefect=False,
            until="balance",
            balance={"temperature": np.float32(1.5)},
        )
        for each, size in zip(files, sizes, strict=True)
    ]
    assert {run.artifacts["balance"].ref for run in runs} == {runs[0].artifacts["balance"].ref}
    records = [read_run(run_path(run.store.layout.runs, run.run_id)) for run in runs]
    assert len({as_json(record.parameters) for record in records}) == 1


def test_runs_are_filtered_sorted_and_tables_of_any_library(done: FinishedRun) -> None:
    store, runs = done.store, done.store.runs()
    (best,) = store.runs(sort="packed.num_sequences", best=1, lowest=True, show=["pack.sequence_length"])
    assert (best["pack.sequence_length"], best["profile"]) == (16, "tiny")
    assert best["packed.num_sequences"] == done.figures["packed"]["num_sequences"]
    assert len(store.runs(state="failed")) == len(store.runs(experiment="nothing")) == 0
    assert len(store.runs(since="1h", profile="tiny")) == len(runs)
    assert runs.arrow()["profile"].to_pylist() == runs["profile"] == ["tiny"] * len(runs)
    assert pd.api.types.is_datetime64_any_dtype(runs.to_pandas()["started"])
    assert pa.table(runs).column_names == runs.columns
    assert [row["run_id"] for row in runs] == [row["run_id"] for row in runs.to_dicts()]
    with pytest.raises(KeyError, match="run_id"):
        runs["nothing"]
    with pytest.raises(UsageError, match="did you mean"):
        store.runs(sort="num_sequence")
    with pytest.raises(UsageError, match="is not a time"):
        store.runs(since="yesterday")
    with pytest.raises(StoreError, match="SELECT"):
        store.sql("DROP TABLE runs")


@pytest.mark.parametrize(
    ("recorded", "kind"),
    [
        ((2**53 + 1, 7), "int64"),
        ((2**64 - 1, 7), "uint64"),
        ((True, False), "bool"),
        ((2, 1.5), "double"),
        ((2**53 + 1, 1.5), "string"),
        ((3.5, "none"), "string"),
    ],
)
def test_a_parameter_is_a_column_of_its_type_whatever_it_holds(
    tmp_path: Path, recorded: tuple[Any, Any], kind: str
) -> None:
    store = tokmill.Store(tmp_path / "store")
    for number, value in enumerate(recorded):
        begun = Begun(name="p", profile="p", parameters={"mix": {"p": value}})
        store.catalog.add_run(f"r{number}", begun=begun)
    store.catalog.add_run("without", begun=Begun(name="p", profile="p"))
    runs = store.runs(sort="name", show=["mix.p"])
    found = dict(zip(runs["run_id"], runs["mix.p"], strict=True))
    exact = [value if kind != "string" or isinstance(value, str) else json.dumps(value) for value in recorded]
    assert found == {"r0": exact[0], "r1": exact[1], "without": None}
    assert str(runs.arrow().schema.field("mix.p").type) == kind


def test_artifacts_are_found_by_every_name_and_open_as_what_they_are(done: FinishedRun) -> None:
    store = done.store
    store.find("tokenizer/tiny").tag("prod")
    by_name = [store.find(name) for name in ("tokenizer/tiny", "tokenizer/tiny@v1", "tokenizer/tiny@prod")]
    assert by_name == [done["tokenizer"]] * 3
    assert store[done["tokenizer"].ref.fingerprint[:8]] == done["tokenizer"]
    assert store.artifacts("tokenizer").to_dicts()[0]["aliases"] == ["prod"]
    metrics = store.metrics("tokenizer", "tiny").to_pandas().set_index("metric")
    assert metrics.loc["vocab_size", "value"] == 290
    with pytest.raises(UsageError, match="did you mean"):
        store.find("tokenizer/tinny")
    with pytest.raises(UsageError, match="did you mean tokenizer"):
        store.artifacts("tokeniser")

    opened = {kind: artifact.open() for kind, artifact in done.artifacts.items()}
    assert opened["tokenizer"].encode("some text") == tokmill.load(done["tokenizer"].path).encode("some text")
    assert opened["packed"].arrays()["input_ids"].shape[1] == 16
    assert set(opened["encoded"]) == set(opened["corpus"].sources) == {"one", "two"}
    assert len(opened["encoded"]["one"]) == 60
    assert "\n# Training data\n" in opened["card"]
    assert len(opened["audit"].tokens) == 290
    assert opened["mixture"].is_dir()
    assert done["audit"].table("vocab_sources")["source"] == ["one", "two", "*"]
    with pytest.raises(UsageError, match="has vocab_"):
        done["audit"].table("nothing")
    with pytest.raises(UsageError, match="no text"):
        done["tokenizer"].text()


def test_a_store_travels_and_need_not_exist(done: FinishedRun, tmp_path: Path) -> None:
    there = tokmill.Store(tmp_path / "nothing")
    assert len(there.runs()) == len(there.artifacts()) == len(there.metrics("tokenizer")) == 0
    assert there.runs().columns == done.store.runs().columns
    assert not (tmp_path / "nothing").exists()
    assert pickle.loads(pickle.dumps(done.store)).location == done.store.location
    assert tokmill.Store.open(done.store.location).location == done.store.location
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        tokmill.Store(tmp_path / "file")


class _Page(HTMLParser):
    """The text of a page, and what it loads or runs."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.active: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.active += [tag] if tag in {"script", "link", "img", "iframe", "object"} else []
        self.active += [name for name, _ in attrs if name in {"src", "href"} or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def displays(done: FinishedRun) -> Iterator[Any]:
    """One of everything that shows itself."""
    yield from (done, done.store, done.tasks, done.store.runs(), done.store.lineage("packed/tiny"))
    yield from done.artifacts.values()
    yield from (done["tokenizer"].open(), done["audit"].open(), done["packed"].open())
    yield from done["encoded"].open().values()


def test_displays_are_escaped_and_load_nothing(done: FinishedRun) -> None:
    for shown in displays(done):
        page, html = _Page(), shown._repr_html_()
        page.feed(html)

        assert page.active == [], type(shown)
        assert page.text.strip()
        assert not re.search(r"#[0-9a-f]{3,6}\b|https?:", html.partition("</style>")[0]), "no fixed colours"
        assert len(html) < 30_000
    odd = tokmill.Table(pa.table({NASTY: [NASTY, None]}))
    assert "<script>" not in odd._repr_html_()
    tokens = done["audit"].open().tokens
    assert "&lt;" in tokens._repr_html_() or "&lt;" in done["tokenizer"].open()._repr_html_()


@pytest.mark.objects
def test_a_bucket_is_a_store_for_columns_too(bucket: Bucket) -> None:
    store = tokmill.Store(f"{bucket.url}/team")

    tok = tokmill.train(["some text for a bucket"] * 9, vocab_size=265, store=store, name="columns")
    ids = tokmill.encode(tok)

    (source,) = store.sql("SELECT DISTINCT origin FROM inputs WHERE role = 'files'")["origin"]
    assert source.startswith(f"{bucket.url}/team/.texts/")
    assert len(ids) == 9
    assert store.find("tokenizer/columns").open() == tok
