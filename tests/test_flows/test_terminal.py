"""What a terminal and a log show: numbers, tables, and the progress of a run."""

import contextlib
import io
import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tokmill.flows.cli.output import Table
from tokmill.flows.cli.progress import LiveProgress, PlainProgress, display
from tokmill.flows.figures import figure, key_figures, labelled, percentage, size, span
from tokmill.flows.results import RunRow
from tokmill.flows.run.events import RunState
from tokmill.flows.run.progress import Group, Pace
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tokenizer.jit import Compilation, machine_code

REF = ArtifactRef(kind="corpus", name="x", fingerprint="0" * 64, content_digest="1" * 64)
LOSSY = {"bytes_per_token": 4.5, "mixture_bytes_per_token": 4.5, "unknown_share": 0.0166}


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (size, {0: "0 B", 812: "812 B", 1024: "1.0 KiB", 31_525_224: "30.1 MiB", 5 << 40: "5.0 TiB"}),
        (span, {-13469648.9: "–", 0.04: "0.0 s", 9.94: "9.9 s", 59.4: "59 s", 59.7: "1 min 00 s"}),
        (span, {200: "3 min 20 s", 7500: "2 h 05 min"}),
        (number, {1234567: "1,234,567", 3.14159: "3.142", "gpt2": "gpt2", 0.5: "0.5", True: "yes"}),
        (number, {0.000942138: "0.0009421", 0.0000123: "0.0000123", 123456.7: "123,457"}),
        # nothing and all are said only of nothing and all
        (percentage, {0: "0.00 %", 0.000003: "0.0003 %", 0.00996: "1.00 %", 0.9999: "99.99 %"}),
        (percentage, {0.999982: "99.998 %", 1: "100.00 %"}),
        (lambda pair: figure(*pair), {("num_files", 1932): "1,932 files", ("num_bytes", 2048): "2.0 KiB",
                                      ("vocab_size", 8192): "vocab size 8,192", ("num_terms", 1): "1 term"}),
        (lambda pair: labelled(*pair), {("bytes_per_token", 4.3123): ("bytes per token", "4.312"),
                                        ("padding_share", 0.015): ("padding share", "1.50 %")}),
    ],
)  # fmt: skip
def test_numbers_are_for_people(form, shown):
    assert {value: form(value) for value in shown} == shown


class Shown(RunState):
    """A run whose events are displayed."""

    def __init__(self, display):
        super().__init__(display)
        self.display = display


@pytest.mark.parametrize(
    ("kind", "metrics", "shown"),
    [
        ("mixture", {"num_tokens": 1000, "limited_by": ""}, "1,000 tokens"),
        ("corpus", {"num_documents": 2, "num_quarantined": 1}, "2 documents · 1 quarantined"),
        ("audit", {"fertility": 1.5, "text": "held_out"}, "fertility 1.5 · on held-out text"),
        ("audit", {**LOSSY, "fertility": 1.5}, "4.5 bytes per token · unknown share 1.66 % · fertility 1.5"),
        ("sweep_cell", {"a": 1, "b": 2, "c": 3, **LOSSY}, "a 1 · unknown share 1.66 % · b 2 · c 3"),
        # compression never stands without what is lost for it
        *((kind, LOSSY, "4.5 bytes per token · unknown share 1.66 %") for kind in ("usage", "audit")),
        ("card", LOSSY, "4.5 mixture bytes per token · unknown share 1.66 %"),
    ],
)
def test_key_figures_are_the_telling_ones_of_a_kind(kind, metrics, shown):
    assert key_figures(kind, metrics) == shown


CELLS = st.text(st.characters(codec="utf-8"), max_size=12)


def drawn(made):
    console = Console(width=10_000, file=io.StringIO())
    console.print(made)
    return "".join(f"{line.rstrip()}\n" for line in lines(console))


@given(st.data(), st.integers(1, 4), st.booleans())
def test_a_table_that_is_written_without_rich_looks_as_rich_draws_it(data, width, wrap):
    row = st.lists(CELLS, min_size=width, max_size=width)
    columns, *rows = data.draw(st.lists(row, min_size=2, max_size=6))
    made = Table(columns, rows, list(data.draw(st.sets(st.sampled_from(columns)))), wrap=wrap)
    assert made.plain() == drawn(made)


ROW = {"run": "5b8b8092", "name": "a name of thirty characters …", "made": "4/16", "tags": "winner"}


def in_terminal(width, **more):
    """What a terminal of this width shows of a table with one row."""
    console, row = Console(width=width, file=io.StringIO()), {**ROW, **more}
    console.print(Table(list(row), [list(row.values())], right=("made", *more)))
    return console.file.getvalue().splitlines()


def test_a_narrow_terminal_shows_every_column_or_names_and_values():
    narrow = in_terminal(40)
    assert narrow[0].split() == list(ROW)
    assert max(map(len, narrow)) <= 40
    assert {"5b8b8092", "4/16", "winner"} <= set(narrow[2].split())
    numbers = {f"figure_number_{number}": f"{number}.123" for number in range(3)}
    lines = [line.split(maxsplit=1) for line in in_terminal(40, **numbers)]
    assert [(name, value.rstrip()) for name, value in lines if name in numbers] == [*numbers.items()]


@pytest.fixture
def clock(monkeypatch):
    """Set the time, in seconds."""
    return lambda second: monkeypatch.setattr("time.monotonic", lambda: float(second))


def plain():
    console = Console(file=io.StringIO(), width=100)
    return Shown(PlainProgress(console)), console


def live(width):
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=30, color_system=None)
    return Shown(LiveProgress(console)), console


def lines(console):
    return console.file.getvalue().splitlines()


def finish(shown, *tasks, how="made", **figures):
    for task in tasks:
        shown.finish(RunRow(task, REF, how, 1.25 if how == "made" else 0.0, figures))


def test_a_task_is_one_line_with_its_figures_and_shards_are_one_when_the_last_is_done(monkeypatch):
    shown, console = plain()
    with shown.display:
        shown.expect("ingest", 1)
        shown.expect("count[*]", 3)
        shown.start("ingest")
        finish(shown, "ingest", num_documents=1932)
        finish(shown, "count[a/0]", "count[zh/hans/1]", how="cached")
        assert len(lines(console)) == 1
        finish(shown, "count[b/0]", how="cached")
        finish(shown, "pack[plan]", "card")  # that nobody has announced
        shown.expect("score[*]", 1)
        shown.start("score[noise/a/0]")
        shown.expect("score[*]", 1)  # announced again, it grows
        finish(shown, "score[noise/a/0]", "score[perplexity/a/0]")
    shown.start("train")
    shown.progress("train", StageProgress(3_000, 31_744, "merges"))
    shown.display.break_silence()  # there is none
    monkeypatch.setattr("tokmill.flows.cli.progress._SILENT_SECONDS", -1.0)
    monkeypatch.setattr("tokmill.flows.cli.progress._SILENT_SHARE", 0.0)
    shown.display.break_silence()
    said = [line.split() for line in lines(console)]
    assert said[0] == ["ingest", "made", "1.2", "s", "1,932", "documents"]
    assert said[1] == ["count[*]", "3/3", "cached"]
    assert [line[0] for line in said[2:4]] == ["pack[plan]", "card"]
    assert said[4][:2] == ["score[*]", "2/2"]
    assert said[5] == ["train", "at", "work", "0.0", "s", "3,000/31,744", "merges"]
    assert len({shown.groups["score[*]"].seconds for _ in range(2)}) == 1  # its clock stands still


def test_what_became_of_tasks_is_counted_and_threads_lose_none():
    shown, console = plain()
    shown.expect("count[*]", 403)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda shard: finish(shown, f"count[a/{shard}]"), range(400)))
    assert lines(console) == []
    finish(shown, "count[b/0]", how="cached")
    finish(shown, "count[b/1]", how="waited")  # for another process
    shown.fail("count[b/2]", "broken")
    finish(shown, "audit")
    shown.refuse("audit", "gate failed: a is above b")
    shown.note("set aside [red]x[/red]")
    assert "400 made, 1 cached, 1 waited for, 1 failed" in lines(console)[0]
    assert lines(console)[2].split()[:3] == ["audit", "gate", "failed"]
    assert lines(console)[3] == "  set aside [red]x[/red]"


def merges(pace, *made):
    for second, done in made:
        pace.note(StageProgress(done, 30_000, "merges"), now=float(second))
    return pace.words(float(made[-1][0]))


def test_a_pace_is_that_of_late_and_is_not_reckoned_by_a_standstill():
    assert merges(Pace(), (0, 0), (45, 20)) == "20/30,000 merges"  # kernels were compiled
    assert merges(Pace(), (10, 0), (14, 10_000)) == "8.0 s left · 2,500 merges/s · 10,000/30,000"
    assert merges(Pace(), (10, 0), (20, 30_000)) == "30,000/30,000 merges"
    slow_then_quick = [
        *((s, 10 * s) for s in range(60)),
        *((s, 590 + 1000 * (s - 59)) for s in range(60, 70)),
    ]
    assert merges(Pace(), *slow_then_quick) == "19 s left · 1,000 merges/s · 10,590/30,000"
    made = [sum(500 for each in range(second) if each % 15 < 8) for second in range(103)]
    # eight seconds of merging, then seven of looking for pairs, and so on
    assert merges(Pace(), *enumerate(made)) == "7.8 s left · 100 merges/s · 28,000/30,000"
    pace = Pace()
    merges(pace, (0, 0), (50, 29_000))
    pace.note(StageProgress(1, 900_000, "bytes"), now=60.0)  # other work
    pace.note(StageProgress(450_000, 900_000, "bytes"), now=61.0)
    assert pace.words(61.0).startswith("1.0 s left · 0.4 MB/s · ")


def test_a_silence_is_broken_after_three_seconds_and_ever_more_rarely(clock):
    clock(100)
    shown, console = plain()
    shown.wait_for("a server")
    said = {}
    for second in range(1, 601):
        clock(100 + second)
        if second == 5:
            shown.start("train")
        shown.display.break_silence()
        said.setdefault(len(lines(console)), second)
    assert [" ".join(line.split()) for line in lines(console)[:2]] == [
        "starting a server … 3.0 s",
        "train at work 1.0 s",
    ]
    times = [*said.values()][1:]
    silences = [after - before for before, after in itertools.pairwise(times)]
    assert silences == sorted(silences)
    assert (times[0], silences[0]) == (3, 3)
    assert 25 < silences[-1] < 35


def test_the_kernel_that_is_compiled_is_told_with_its_number(monkeypatch):
    monkeypatch.setattr(machine_code, "_begun", [])
    monkeypatch.setattr(machine_code, "_at_work", [])
    shown, console = live(80)
    shown.start("train")
    for name in ("trainer.merge", "queue.first"):
        machine_code.tell(Compilation(name, cached=False, seconds=None))
    console.print(shown.display.drawn())
    assert "train" in lines(console)[0]
    assert lines(console)[1].split(maxsplit=1)[1].rstrip() == "compiling kernel 2 of about 40: first"
    shown, console = live(80)
    shown.wait_for("a server")
    monkeypatch.setattr(machine_code, "_at_work", [])
    console.print(shown.display.drawn())
    assert lines(console)[-1].split()[1:5] == ["starting", "a", "server", "…"]


def test_a_terminal_shows_a_bar_the_time_that_is_left_and_whole_figures(clock):
    shown, console = live(80)
    for name in ("encode.validation[*]", "train"):
        shown.start(name)
    for second, done in enumerate((0, 15_000)):
        clock(second)
        shown.progress("train", StageProgress(done, 30_000, "merges"))
    console.print(shown.display.drawn())
    assert " encode.validation[*] " in lines(console)[0]
    assert "1.0 s left · …" in lines(console)[1]
    assert "━" * 9 in console.file.getvalue()
    for width, seen in ((90, "27,623 tokens · 216 sequences"), (76, "27,623 tokens · …")):
        shown, console = live(width)
        finish(shown, "tokenizer_card", "pack", num_tokens=27_623, num_sequences=216)
        console.print(shown.display.drawn())
        first, second, *_ = lines(console)
        assert first.rstrip().endswith(seen)
        assert first.index("made") == second.index("made")


@pytest.mark.parametrize(("term", "terminal"), [("xterm", True), ("xterm", None), ("dumb", True)])
def test_a_terminal_gets_live_progress_and_anything_else_plain_lines(monkeypatch, term, terminal):
    monkeypatch.setenv("TERM", term)
    kind = LiveProgress if (term, terminal) == ("xterm", True) else PlainProgress
    assert isinstance(display(Console(file=io.StringIO(), force_terminal=terminal)), kind)


def test_a_failed_run_leaves_its_lines_on_the_terminal_and_a_good_one_clears_it_for_its_summary():
    shown, console = live(100)
    error = RuntimeError("failed")
    shown.display.__enter__()
    shown.expect("encode[*]", 2)
    shown.start("encode[code/0]")
    finish(shown, "encode[code/0]")
    shown.fail("encode[code/1]", "broken")
    finish(shown, "audit")
    shown.refuse("audit", "gate failed: a is above b")
    shown.display.__exit__(type(error), error, None)
    tasks, gate = lines(console)[-2:]
    assert tasks.rpartition("\x1b[2K")[2].split()[:6] == ["✗", "encode[*]", "2/2", "1", "made,", "1"]
    assert gate.split()[:4] == ["✗", "audit", "gate", "failed"]
    shown, console = live(100)
    with shown.display:
        finish(shown, "audit")
        shown.note("a remark stays")
    assert console.file.getvalue().split("a remark stays")[-1].endswith("\x1b[1A\x1b[2K")


def test_a_reader_that_goes_away_does_not_end_the_run():
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as stream:
        shown = Shown(PlainProgress(Console(file=stream)))
        finish(shown, "audit")
        shown.note("nobody reads this")
    assert shown.groups["audit"].complete
    assert shown.display.console.quiet


def test_progress_is_that_of_work_and_not_of_what_was_reused():
    group = Group("encode[*]", 4)
    for title in ("encode[a/0]", "encode[a/1]"):
        group.start(title, 100.0)
    group.finish(RunRow("encode[a/0]", REF, "made", 12.0, {}))
    group.finish(RunRow("encode[a/2]", REF, "cached", 0.0, {}))
    group.report("encode[a/1]", StageProgress(4_000_000, 8_000_000, "bytes"))
    assert (group.share, group.words(112.0)) == (0.625, "2/4 · 12 s left")
    alone = Group("train")
    alone.start("train", 0.0)
    assert alone.words(11.0) == "11 s so far"
    alone.report("train", StageProgress(1000, 4000, "merges"))
    assert alone.words(20.0) == "1,000/4,000 merges"
    alone.finish(RunRow("train", REF, "made", 60.0, {"num_merges": 4000}))
    assert (alone.share, alone.complete) == (1.0, True)


@given(st.lists(st.sampled_from(["start", "report", "made", "cached", "fail"]), max_size=30))
def test_a_share_is_never_more_than_all(events):
    group = Group("encode[*]", max(len(events), 1))
    for index, event in enumerate(events):
        title = f"encode[a/{index}]"
        group.start(title, float(index))
        if event == "report":
            group.report(title, StageProgress(index * 3, 10, "bytes"))
        elif event == "fail":
            group.fail(title)
        elif event != "start":
            group.finish(RunRow(title, REF, event, 1.0, {}))
        assert 0 <= group.share <= 1
        assert (group.share == 1) == group.complete
        assert group.words(float(index) + 1)
