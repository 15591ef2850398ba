"""First causes for which artifacts differ, and what became of the documents of a file.

Runs are compared in `test_experiment_story.py`.
"""

from pathlib import Path

from tokmill.tasks.comparing.documents import Documents, compare
from tokmill.tasks.comparing.explaining import explain
from tokmill.tasks.comparing.runs import Line, change, change_text
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params, Request, Stage
from tokmill.tasks.store import Store


class Nothing(Params):
    """No parameters."""


def made_with(store: Store, text: str, version: int = 1, *, refresh: bool = False) -> ArtifactRef:
    """Make an artifact whose content its recipe does not determine."""

    def run(params: Nothing, *, out: Path) -> Outcome:
        (out / "text.txt").write_text(text)
        return Outcome({"num_chars": len(text)})

    stage = Stage(verb="say", task="say", kind="said", version=version, params=Nothing, run=run)
    return store.realize(Request(stage, "n", Nothing(), {}), refresh=refresh).ref


def test_an_artifact_that_was_made_again_with_other_content_blames_the_environment(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    first = made_with(store, "a")
    again = made_with(store, "b", refresh=True)

    found = explain(store, first, again)

    (cause,) = found.causes
    assert (cause.sort, cause.field) == ("unknown", "content")
    assert "not deterministic" in cause.text


def test_another_version_of_a_stage_is_named(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    (cause,) = explain(store, made_with(store, "a"), made_with(store, "ab", 2)).causes

    assert (cause.sort, cause.field, cause.a, cause.b) == ("stage", "say.version", 1, 2)
    idle = explain(store, made_with(store, "a"), made_with(store, "a", 3))
    assert idle.same_content
    assert [cause.field for cause in idle.without_effect] == ["say.version"]


def test_documents_of_a_file_are_compared_by_content_then_by_row() -> None:
    old = {0: b"a", 1: b"b", 2: b"c", 3: b"a"}

    assert compare(old, old) == Documents(kept=4)
    assert compare(old, {0: b"a", 1: b"x", 2: b"c", 3: b"a", 4: b"y"}) == Documents(1, 0, 1, 3)
    assert compare(old, {0: b"b", 1: b"c"}) == Documents(lost=2, kept=2)
    assert compare(old, {0: b"c", 1: b"a", 2: b"a", 3: b"b"}) == Documents(kept=4)  # in another order
    assert compare({}, old) == Documents(gained=4)


def test_changes_are_of_numbers_only() -> None:
    assert change(2, 3) == (1, 0.5)
    assert change(0, 3) == (3, None)
    assert change(-2.0, -3.0) == (-1.0, -0.5)
    assert change("a", "b") is None
    assert change(True, False) is None
    assert change(None, 1) is None


def test_a_change_is_not_shown_as_none() -> None:
    assert [change_text(0.4001, value) for value in (0.4001, 0.3999, 0.8002)] == ["", "-0.05 %", "+100.0 %"]


def test_what_one_run_loses_of_its_text_is_shown_beside_a_run_that_loses_none() -> None:
    assert Line("audit.unknown_share", [None, 0.016]).is_shared
    assert not Line("audit.num_pieces", [None, 16]).is_shared
