"""The progress display of a run: one line per group of tasks, on a terminal and elsewhere."""

import contextlib
import io
import os
import threading

import pytest
from rich.console import Console

from tokmill.flows.cli.progress import LiveProgress, PlainProgress, display
from tokmill.flows.results import RunRow, group_of
from tokmill.flows.run.events import RunState
from tokmill.flows.run.progress import Pace
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import ArtifactRef

REF = ArtifactRef(kind="corpus", name="x", fingerprint="0" * 64, content_digest="1" * 64)


class Shown(RunState):
    """A run whose events are displayed."""

    def __init__(self, display):
        super().__init__(display)
        self.display = display

    def __enter__(self):
        self.display.__enter__()
        return self

    def __exit__(self, *details):
        self.display.__exit__(*details)

    def drawn(self):
        return self.display.drawn()


def plain():
    console = Console(file=io.StringIO(), width=100)
    return Shown(PlainProgress(console)), console


def lines(console):
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("task", "group"),
    [
        ("encode[english/3]", "encode[*]"),
        ("encode[zh/hans/3]", "encode[*]"),
        ("merge_counts[english/0-31]", "merge_counts[*]"),
        ("pack[12]", "pack[*]"),
        ("pack[plan]", "pack[plan]"),
        ("ingest", "ingest"),
    ],
)
def test_shards_are_one_group(task, group):
    assert group_of(task) == group


def test_a_task_is_one_line_with_its_figures():
    shown, console = plain()
    with shown:
        shown.expect("ingest", 1)
        shown.start("ingest")
        shown.finish(RunRow("ingest", REF, "made", 1.25, {"num_documents": 1932}))
    assert lines(console) == ["ingest                  made                  1.2 s  1,932 documents"]


def test_the_clock_of_a_group_stands_still_once_its_last_task_has_ended():
    shown, _ = plain()
    shown.expect("count[*]", 2)
    for task in ("count[a/0]", "count[a/1]"):
        shown.start(task)
        shown.finish(RunRow(task, REF, "made", 0.5, {}))
    group = shown.groups["count[*]"]
    first = group.seconds
    assert group.seconds == first


def test_shards_are_one_line_when_the_last_is_done():
    shown, console = plain()
    with shown:
        shown.expect("count[*]", 3)
        shown.finish(RunRow("count[a/0]", REF, "cached", 0.0, {}))
        shown.finish(RunRow("count[a/1]", REF, "cached", 0.0, {}))
        assert lines(console) == []
        shown.finish(RunRow("count[b/0]", REF, "cached", 0.0, {}))
    assert lines(console) == ["count[*]           3/3  cached"]


def test_what_became_of_shards_is_counted():
    shown, console = plain()
    shown.expect("count[*]", 3)
    shown.finish(RunRow("count[a/0]", REF, "cached", 0.0, {}))
    shown.finish(RunRow("count[a/1]", REF, "made", 0.0, {}))
    shown.fail("count[a/2]", "broken")
    assert "1 made, 1 cached, 1 failed" in lines(console)[0]


def test_a_gate_that_failed_is_not_shown_as_made():
    shown, console = plain()
    shown.expect("audit", 1)
    shown.finish(RunRow("audit", REF, "made", 0.5, {}))
    shown.refuse("audit", "gate failed: a is above b")
    assert lines(console)[1].split()[:3] == ["audit", "gate", "failed"]


def test_waiting_for_another_process_is_not_making():
    shown, console = plain()
    shown.expect("count[*]", 2)
    shown.finish(RunRow("count[a/0]", REF, "made", 0.5, {}))
    shown.finish(RunRow("count[a/1]", REF, "waited", 0.5, {}))
    shown.finish(RunRow("card", REF, "waited", 0.5, {}))
    assert "1 made, 1 waited for" in lines(console)[0]
    assert lines(console)[1].split()[:3] == ["card", "waited", "for"]


def test_an_unannounced_task_is_a_group_of_one():
    shown, console = plain()
    shown.finish(RunRow("card", REF, "cached", 0.0, {}))
    assert lines(console) == ["card                    cached"]


def test_a_pace_says_how_fast_and_how_long():
    pace = Pace()
    pace.note(StageProgress(0, 30_000, "merges"), now=10.0)
    assert pace.words(11.0) == "0/30,000 merges"
    pace.note(StageProgress(10_000, 30_000, "merges"), now=14.0)
    assert pace.words(14.0) == "8.0 s left · 2,500 merges/s · 10,000/30,000"
    assert pace.words(18.0) == "16 s left · 1,250 merges/s · 10,000/30,000"
    pace.note(StageProgress(30_000, 30_000, "merges"), now=20.0)
    assert pace.words(21.0) == "30,000/30,000 merges"


def test_a_pace_is_that_of_late():
    pace = Pace()
    for second in range(60):
        pace.note(StageProgress(10 * second, 20_590, "merges"), now=float(second))
    for second in range(60, 70):
        pace.note(StageProgress(590 + 1000 * (second - 59), 20_590, "merges"), now=float(second))
    assert pace.words(69.0) == "10 s left · 1,000 merges/s · 10,590/20,590"


def test_what_is_left_is_not_reckoned_by_a_standstill():
    pace, made = Pace(), 0
    for second in range(102):  # eight seconds of merging, then seven of looking for pairs, and so on
        made += 1000 if second % 15 < 8 else 0
        pace.note(StageProgress(made, 60_000, "merges"), now=float(second))
    assert made == 56_000
    assert pace.words(102.0) == "8.0 s left · 167 merges/s · 56,000/60,000"  # 500 per second since second 50


def test_what_is_left_is_told_once_something_is_done_and_anew_for_other_work():
    pace = Pace()
    pace.note(StageProgress(0, 31_744, "merges"), now=0.0)
    pace.note(StageProgress(20, 31_744, "merges"), now=45.0)  # kernels were compiled
    assert pace.words(45.0) == "20/31,744 merges"
    pace.note(StageProgress(31_000, 31_744, "merges"), now=50.0)
    pace.note(StageProgress(1, 900_000, "bytes"), now=60.0)
    pace.note(StageProgress(450_000, 900_000, "bytes"), now=61.0)
    assert pace.words(61.0).startswith("1.0 s left · 0.4 MB/s · ")


def test_a_narrow_terminal_shows_the_time_that_is_left(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    shown = Shown(LiveProgress(console))
    for name in ("encode.validation[*]", "train"):
        shown.start(name)
    for second, done in enumerate((0, 15_000)):
        monkeypatch.setattr("time.monotonic", lambda second=second: float(second))
        shown.progress("train", StageProgress(done, 30_000, "merges"))
    console.print(shown.drawn())
    validation, train, *_ = lines(console)
    assert " encode.validation[*] " in validation
    assert "1.0 s left · …" in train


def test_a_long_group_prints_fewer_and_fewer_lines(monkeypatch):
    shown, console = plain()
    shown.expect("count[*]", 1000)
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    shown.start("count[a/0]")
    for second in range(1, 601):
        monkeypatch.setattr("time.monotonic", lambda second=second: 100.0 + second)
        shown.finish(RunRow(f"count[a/{second}]", REF, "made", 1.0, {}))
    assert [line.split()[-2] for line in lines(console)] == ["11", "23", "47", "35", "11", "23"]


def test_a_task_that_tells_how_far_it_is_shows_it(monkeypatch):
    shown, console = plain()
    monkeypatch.setattr("tokmill.flows.cli.progress._SIGN_OF_LIFE_SECONDS", -1.0)
    with shown:
        shown.start("train")
        shown.progress("train", StageProgress(3_000, 31_744, "merges"))
        shown.finish(RunRow("train", REF, "made", 2.0, {}))
    assert [line.split() for line in lines(console)] == [
        ["train", "at", "work", "0.0", "s", "3,000/31,744", "merges"],
        ["train", "made", "2.0", "s"],
    ]


def test_a_terminal_shows_a_bar_and_the_pace_of_a_task_that_tells_it():
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    shown = Shown(LiveProgress(console))
    shown.start("train")
    shown.progress("train", StageProgress(15_000, 30_000, "merges"))
    console.print(shown.drawn())
    assert "━" * 9 in console.file.getvalue()
    assert "15,000/30,000 merges" in console.file.getvalue()


@pytest.mark.parametrize(
    ("width", "seen"),
    [
        (90, "27,623 tokens · 216 sequences"),
        (76, "27,623 tokens · …"),
        (69, "27,623 tokens"),
    ],
)
def test_a_narrow_terminal_shows_whole_figures_below_one_another(width, seen):
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    shown = Shown(LiveProgress(console))
    for name in ("tokenizer_card", "pack"):
        shown.finish(RunRow(name, REF, "made", 1.0, {"num_tokens": 27_623, "num_sequences": 216}))
    console.print(shown.drawn())

    first, second, *_ = lines(console)
    assert first.startswith("✓ tokenizer_card ")
    assert first.rstrip().endswith(seen)
    assert first.index("made") == second.index("made")


def test_notes_are_lines_without_markup():
    shown, console = plain()
    shown.note("set aside [red]x[/red]")
    assert lines(console) == ["  set aside [red]x[/red]"]


def test_threads_lose_no_task():
    shown, console = plain()
    shown.expect("count[*]", 400)

    def finish(thread):
        for shard in range(50):
            shown.start(f"count[{thread}/{shard}]")
            shown.finish(RunRow(f"count[{thread}/{shard}]", REF, "made", 0.0, {}))

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line.split()[:3] for line in lines(console)] == [["count[*]", "400/400", "made"]]


def test_a_terminal_gets_live_progress_and_anything_else_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(display(Console(file=io.StringIO(), force_terminal=True)), LiveProgress)
    assert isinstance(display(Console(file=io.StringIO())), PlainProgress)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display(Console(file=io.StringIO(), force_terminal=True)), PlainProgress)


def live(action):
    """Return what stays on a terminal of 100 columns after live progress."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30, color_system=None)
    shown = Shown(LiveProgress(console))
    shown.__enter__()
    action(shown)
    error = RuntimeError("failed")
    shown.__exit__(type(error), error, None)
    return console.file.getvalue()


def test_a_failed_run_leaves_its_lines_on_the_terminal():
    def action(shown):
        shown.expect("encode[*]", 2)
        shown.start("encode[code/0]")
        shown.finish(RunRow("encode[code/0]", REF, "made", 1.0, {}))
        shown.fail("encode[code/1]", "broken")
        shown.expect("audit", 1)

    last = live(action).splitlines()[-1]
    assert last.rpartition("\x1b[2K")[2].split()[:6] == ["✗", "encode[*]", "2/2", "1", "made,", "1"]


def test_a_run_that_ends_well_clears_the_terminal_for_its_summary():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30, color_system=None)
    with Shown(LiveProgress(console)) as shown:
        shown.finish(RunRow("audit", REF, "made", 1.0, {}))
        shown.note("a remark stays")
    tail = console.file.getvalue().split("a remark stays")[-1]
    assert tail.endswith("\x1b[1A\x1b[2K")


def test_a_reader_that_goes_away_does_not_end_the_run():
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as stream:
        shown = Shown(PlainProgress(Console(file=stream)))
        shown.finish(RunRow("audit", REF, "made", 1.0, {}))
        shown.note("nobody reads this")
    assert shown.groups["audit"].complete
    assert shown.display.console.quiet


def test_a_group_that_is_announced_again_grows():
    shown, console = plain()
    shown.expect("score[*]", 1)
    shown.start("score[noise/a/0]")
    shown.expect("score[*]", 1)
    shown.finish(RunRow("score[noise/a/0]", REF, "made", 0.5, {}))
    assert lines(console) == []
    shown.finish(RunRow("score[perplexity/a/0]", REF, "cached", 0.0, {}))
    assert lines(console)[0].split()[:2] == ["score[*]", "2/2"]
