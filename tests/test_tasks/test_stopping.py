"""A request to stop ends the work of every stage that may take long, wherever it is."""

import functools
from dataclasses import replace
from pathlib import Path

import pytest

from tests.test_tasks.whole_line import Line, LineParams
from tokmill.tasks.core.context import report_progress
from tokmill.tasks.mixing.stage import MixParams
from tokmill.tasks.store import Store
from tokmill.tokenizer.core import stopping

# Their work does not grow with the text: they read and write tables of a few rows for each source or token.
SHORT = {"balance", "tokenizer_card", "card"}


class StoppedLine(Line):
    """Has every stage begin its work while a stop is requested, and then again without."""

    def make(self, stage, params, **inputs):
        return super().make(replace(stage, run=functools.partial(self.run_twice, stage)), params, **inputs)

    def run_twice(self, stage, params, *, out: Path, **inputs):
        if stage.verb not in SHORT:
            given_up = out.with_name("given-up")
            given_up.mkdir()
            stopping.request_stop()
            try:
                with pytest.raises(stopping.StopRequested):
                    stage.run(params, out=given_up, **inputs)
            finally:
                stopping.allow_work()
        return stage.run(params, out=out, **inputs)


@pytest.mark.parametrize("measure", ["noise", "perplexity"])
def test_every_long_stage_stops_on_request(texts: Path, tmp_path: Path, measure: str) -> None:
    params = LineParams(mix=MixParams(curriculum={"difficulty": measure}))
    made = StoppedLine(Store.open(tmp_path / "store"), texts).run(params)

    assert "card" in made


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Two sources."""
    for source, number in (("one", 60), ("two", 20)):
        folder = tmp_path / "texts" / source
        folder.mkdir(parents=True)
        lines = (f'{{"text": "document {row} of {source}, with some words"}}\n' for row in range(number))
        (folder / "all.jsonl").write_text("".join(lines), encoding="utf-8")
    return tmp_path / "texts"


def test_a_stage_that_tells_of_its_progress_stops() -> None:
    stopping.request_stop()
    try:
        with pytest.raises(stopping.StopRequested):
            report_progress(1, 2, "merges")
    finally:
        stopping.allow_work()
