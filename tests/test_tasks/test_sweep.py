"""Costs, knees and recommendations of sweeps, by hand."""

from pathlib import Path
from typing import Any

from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.sweep.cell import CELL_FILE, Cell, CellLanguage, CellSource, curve_of
from tokmill.tasks.sweep.recommendation import SweepParams, cost_of, knees, recommend
from tokmill.tasks.sweep.stage import SweepStageParams, SweepSummary, run

SMALL = SweepParams(d_model=10, num_layers=2, context=100)


def cell(size: int, bytes_per_token: float, **changes: Any) -> Cell:
    """A cell with some fields, a premium of its one language, or the compression of its one source."""
    premium, worst = changes.pop("premium", None), changes.pop("worst", bytes_per_token)
    languages = [] if premium is None else [CellLanguage(language="x", num_tokens=1, premium=premium)]
    figures = {"num_bytes": 1000, "num_tokens": 100, "unknown_share": changes.pop("unknown", None)}
    source = CellSource(source="s", num_documents=1, bytes_per_token=worst, **figures)
    nothing = {"temperature": None, "reference": None, "gini": None, "num_used": 1, "keeps_text": True}
    known = {"sources": [source], "languages": languages, "bytes_per_token": bytes_per_token, **figures}
    return Cell(family="byte_bpe", vocab_size=size, num_ids=size, **{**nothing, **known, **changes})


def test_costs_are_those_of_kaplan_s_table() -> None:
    # 12·2·10² = 2,400 parameters; 2·2,400 + 2·2·100·10 + 2·50·10 = 4,800 + 4,000 + 1,000 operations
    shares = [round(share, 6) for share in (1000 / 3400, 4000 / 9800, 1000 / 9800)]
    cost = cost_of(SMALL, 50, 4.0)
    assert cost == (2 * 50 * 10, shares[0], 9800, *shares[1:], 2450.0, 400.0)
    tied = cost_of(SMALL.model_copy(update={"tied": True}), 50, None)
    assert (tied.embedding_parameters, tied.operations_per_token) == (500, 9800)
    assert (tied.operations_per_byte, tied.context_bytes) == (None, None)


def test_the_knee_is_the_size_farthest_below_the_chord() -> None:
    # tokens per byte 0.5, 0.3, 0.26, 0.25 at 1, 2, 4, 8 hundred: scaled 1, 0.2, 0.04, 0 at 0, 1/7, 3/7, 1
    curve = [cell(size, 1 / y) for size, y in ((100, 0.5), (200, 0.3), (400, 0.26), (800, 0.25))]
    assert knees(SMALL, curve) == {"byte_bpe": "byte_bpe-200"}  # 1 − 1/7 − 0.2 = 0.66 against 0.53
    assert knees(SMALL, curve[:2]) == {}
    straight = [cell(size, 1 / y) for size, y in ((100, 0.5), (200, 0.4), (300, 0.3))]
    assert knees(SMALL, straight) == {}


def test_of_those_that_cost_about_as_much_the_fairest_is_recommended() -> None:
    cells = [
        cell(100, 4.0, temperature=1, premium=3.0),
        cell(100, 3.96, temperature=3, premium=2.0),
        cell(100, 3.5, temperature=9, premium=1.5),
    ]
    found = recommend(SweepParams(), cells)
    assert found.cell == "byte_bpe-T3-100"
    assert "1.01% more than the cheapest, byte_bpe-T1-100" in found.reason
    assert "x with 2.00" in found.reason
    assert any(change.endswith("(tolerance 0): byte_bpe-T1-100") for change in found.changes)
    strict = recommend(SweepParams(tolerance=0), cells)
    assert strict.cell == "byte_bpe-T1-100"
    lavish = recommend(SweepParams(tolerance=0.2), cells)
    assert lavish.cell == "byte_bpe-T9-100"


def test_a_tokenizer_that_loses_text_is_left_out() -> None:
    changes = cell(300, 9.0, keeps_text=False)
    found = recommend(SweepParams(), [cell(100, 4.0), cell(200, 9.0, unknown=0.2), changes])
    assert found.cell == "byte_bpe-100"
    assert "Left out: 1 with more than 0.10% unknown tokens and 1 whose text may come back" in found.reason
    assert recommend(SweepParams(), [changes]).cell == "byte_bpe-300"
    none = recommend(SweepParams(), [cell(100, 4.0, unknown=0.2)])
    assert none.cell is None
    assert not none.changes


def test_those_that_lose_text_are_marked_and_come_last(tmp_path: Path) -> None:
    cells = [cell(100, 9.0, unknown=0.05), cell(200, 4.0), cell(300, 5.0, unknown=0.0)]
    for one in cells:
        (tmp_path / one.label).mkdir()
        write_model(tmp_path / one.label / CELL_FILE, one)
    (tmp_path / "out").mkdir()
    run(SweepStageParams(held_out=True), out=tmp_path / "out", cells=[tmp_path / one.label for one in cells])
    summary = SweepSummary.open(tmp_path / "out")
    lossy = [(row["vocab_size"], row["lossy"]) for row in summary.cells]
    assert lossy == [(200, False), (300, False), (100, True)]
    text = (tmp_path / "out" / "summary.md").read_text("utf-8")
    assert "| byte_bpe-100 | lossy | 9.000 |" in text
    assert "what is lost costs no tokens" in text


def test_a_larger_model_affords_a_larger_vocabulary() -> None:
    cells = [cell(8_000, 3.5), cell(64_000, 4.2), cell(256_000, 4.5)]
    sizes = [
        recommend(SweepParams(d_model=width, num_layers=layers, tolerance=0), cells).cell
        for width, layers in ((64, 2), (1024, 24), (8192, 80))
    ]
    assert sizes == ["byte_bpe-8000", "byte_bpe-64000", "byte_bpe-256000"]
    small = recommend(SweepParams(d_model=64, num_layers=2, tolerance=0), cells)
    assert "3.500 bytes per token, 0.648 M operations per byte" in small.reason


def test_temperatures_that_are_nearly_the_same_have_names_of_their_own() -> None:
    names = [curve_of("byte_bpe", temperature) for temperature in (2.0, 3.3, 1.0000001, 1.0000002, 1e300)]
    assert names[:2] == ["byte_bpe-T2", "byte_bpe-T3.3"]
    assert len(set(names)) == len(names)


def test_without_parallel_text_the_least_compressed_source_decides() -> None:
    cells = [cell(100, 4.0, worst=2.0), cell(101, 4.0, worst=2.5)]
    found = recommend(SweepParams(), cells)
    assert found.cell == "byte_bpe-101"
    assert "s with 2.500 bytes per token" in found.reason
    assert "It is the largest size that was tried" in found.reason
