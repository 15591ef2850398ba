"""Sweeps: tokenizers of a grid, made as runs make them, measured as if they had encoded the text."""

from pathlib import Path

import pytest

from tests.test_flows.commands import Tokmill
from tests.test_flows.corpora import InProcess, write_project
from tokmill.flows.errors import ProfileError
from tokmill.flows.run.sweeping import Grid
from tokmill.tasks.sweep.cell import Cell
from tokmill.tokenizer.core.errors import TrainingError

HELD_OUT = "holdout.share=0.3"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small profile and its text."""
    folder = tmp_path_factory.mktemp("swept")
    write_project(folder, num_documents=20)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> InProcess:
    """Runs profiles, with a store of its own."""
    return InProcess.at(tmp_path / "store")


def test_counts_are_made_once_and_a_second_sweep_makes_only_what_is_new(
    run: InProcess, project: Path
) -> None:
    run.sweep(project / "tiny.toml", Grid(vocab_sizes=[300, 350], temperatures=[1, 4]), HELD_OUT)
    run.sweep(project / "tiny.toml", Grid(vocab_sizes=[300, 400], temperatures=[4]), HELD_OUT)
    rows = run.store.catalog.query("SELECT kind, count(*) AS n FROM artifacts GROUP BY kind")
    made = {row["kind"]: row["n"] for row in rows}
    wanted = {"counts": 2, "balance": 2, "sweep_cell": 5, "sweep": 2}
    assert {kind: made[kind] for kind in wanted} == wanted


def test_what_cannot_be_swept_is_refused(run: InProcess, project: Path) -> None:
    text = (project / "tiny.toml").read_text("utf-8").replace("[train]\nvocab_size = 600\n", "[tokenizer]\n")
    using = project / "using.toml"
    use = 'special_tokens = ["<|endoftext|>"]', 'use = "tokenizer/tiny@v1"'
    run.run(project / "tiny.toml", until=["tokenizer"])
    using.write_text(text.replace(*use), "utf-8")
    with pytest.raises(ProfileError, match="a sweep trains tokenizers"):
        run.sweep(using, Grid(vocab_sizes=[400]))
    with pytest.raises(TrainingError, match="1000000"):
        run.sweep(project / "tiny.toml", Grid(vocab_sizes=[400, 1_000_000]))


def test_the_command_trains_compares_and_recommends(tokmill: Tokmill) -> None:
    profile = write_project(tokmill.folder, num_documents=20)
    grid = ("--vocab-size", "300,350,400", "--temperature", "1,4")
    planned = tokmill("vocab", "sweep", profile, *grid, "--plan", "--json").document
    assert {task["action"] for task in planned["tasks"]} == {"run"}
    found = tokmill("vocab", "sweep", profile, *grid, "--json").document
    assert [row["cell"] for row in found["cells"]] == [
        f"byte_bpe-T{temperature}-{size}" for temperature in (1, 4) for size in (300, 350, 400)
    ]
    assert found["recommended"] in {row["cell"] for row in found["cells"]}

    shown = tokmill("vocab", "sweep", profile, *grid, "--d-model", "64").out
    assert "measured on the text that was trained on" in shown
    assert f"recommended: {found['recommended']}" in shown
    assert "1 of " in shown  # the comparison alone; its tokenizers were there
    assert "is a sweep" in tokmill("report", "sweep/tiny", "--out", "report", "--compare", "x").err
    assert tokmill("report", "sweep/tiny", "--out", "report").code == 0
    assert "Recommended" in (tokmill.folder / "report" / "report.html").read_text("utf-8")
    asked = "SELECT count(*) AS n FROM sweep_cells WHERE vocab_size = 350"
    assert tokmill("sql", asked, "--json").document == [{"n": 4}]


WRONG = {
    "--vocab-size=many": "write values with commas between, e.g. 8000,16000",
    "--vocab-size=300,300": "named twice",
    "--family=nothing": "families",
    "--vocab-size=300,,400": "write values with commas between",
    "--vocab-size=100": "byte_bpe: vocab_size=100 must be at least 257",
    f"--vocab-size={'9' * 21}": f"vocab_size={'9' * 21}: it must be less than",
    "--temperature=0": "temperatures.0=0.0: it must be greater than 0",
    "--temperature=nan": "temperatures.0=nan: it must be a finite number",
    "--tolerance=inf": "tolerance=inf: it must be less than or equal to 10",
    "--d-model=99999999": "d_model=99999999: it must be less than",
}


def test_wrong_options_are_told(tokmill: Tokmill) -> None:
    profile = write_project(tokmill.folder, num_documents=3)
    for option, said in WRONG.items():
        done = tokmill("vocab", "sweep", profile, option)
        assert (done.code != 0, said in done.err) == (True, True), (option, done.err)
        assert not any(word in done.err for word in ("Traceback", "a bug in tokmill", "pydantic"))


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("byte_bpe", ()),
        ("unigram", ()),
        *(
            pytest.param(family, settings, marks=pytest.mark.slow)
            for family, *settings in (
                ("wordpiece",),
                ("word_bpe",),
                ("longest_match",),
                ("word_level", "train.allow_smaller=true"),
                ("unigram", "train.mode='sentencepiece'", "train.normalizer='nfkc'"),
                ("char_bpe", "train.mode='sentencepiece'", "train.split_by_whitespace=false"),
            )
        ),
    ],
)
def test_a_cell_has_the_tokens_of_the_encoded_text_and_the_premiums_of_the_audit(
    run: InProcess, project: Path, tmp_path: Path, family: str, settings: tuple[str, ...]
) -> None:
    (tmp_path / "a.txt").write_text("one line\nanother\n")
    (tmp_path / "b.txt").write_text("eine lange Zeile\nnoch eine\n")
    unknown = () if family in ("byte_bpe", "longest_match") else ("train.special_tokens=['[UNK]']",)
    no_end = ("encode.end_of_document=''",) if unknown else ()
    files = f"audit.parallel={{aa = '{tmp_path}/a.txt', bb = '{tmp_path}/b.txt'}}"
    given = (HELD_OUT, f"train.family='{family}'", *settings, *unknown, *no_end, files)
    swept = run.sweep(project / "tiny.toml", Grid(vocab_sizes=[400]), *given)
    assert "sweep" in swept
    run.run(project / "tiny.toml", "train.vocab_size=400", *given)

    found = {kind: run.store.newest(kind, name) for kind, name in {
        "sweep_cell": f"tiny.{family}-400", "tokenizer": "tiny", "audit": "tiny", "corpus": "tiny.validation",
    }.items()}  # fmt: skip
    cell = Cell.open(run.store.path(found["sweep_cell"].ref))
    assert cell.num_bytes == found["corpus"].metrics["num_bytes"]
    paths = [run.store.path(found[kind].ref) for kind in ("sweep_cell", "tokenizer")]
    assert len({(path / "tokmill.json").read_bytes() for path in paths}) == 1
    audit = found["audit"].metrics
    assert (cell.num_tokens, cell.bytes_per_token) == (audit["num_tokens"], audit["bytes_per_token"])
    assert (cell.unknown_share or 0) == audit.get("unknown_share", 0)
    rows = run.store.catalog.query("SELECT language, premium, gini FROM vocab_parity ORDER BY language")
    premiums = {one.language: one.premium for one in cell.languages}
    assert premiums == {row["language"]: row["premium"] for row in rows if row["gini"] is None}
    assert [cell.gini] == [row["gini"] for row in rows if row["gini"] is not None]
    assert cell.reference == "aa"
