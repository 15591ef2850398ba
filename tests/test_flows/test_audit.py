"""The audit in a run: before encoding, on text that is held out, with limits that stop it."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.corpora import InProcess, write_project
from tokmill.flows.errors import ProfileError
from tokmill.tasks.audit import text as audited_text
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.core.errors import AuditError, GateError
from tokmill.tasks.store.record import read_record


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small profile and its text."""
    folder = tmp_path_factory.mktemp("audited")
    write_project(folder, num_documents=20)
    return folder


@pytest.fixture(scope="module")
def run(project: Path) -> InProcess:
    """Runs profiles under other names; all that they have in common is made once."""
    return InProcess.at(project / "store")


def audited(run: InProcess, name: str) -> tuple[Path, dict[str, Any], Any]:
    """The newest audit of a name: its folder, metrics and summary."""
    record = run.store.newest("audit", name)
    assert record is not None
    folder = run.store.path(record.ref)
    return folder, dict(record.metrics), read_summary(folder)


def test_a_gate_stops_before_anything_is_encoded(run: InProcess, project: Path) -> None:
    fails = ("name=early", "audit.min_bytes_per_token=99", "audit.on_failure='fail'", "train.vocab_size=301")
    with pytest.raises(GateError, match=r"bytes_per_token=.* is below 99"):
        run.run(project / "tiny.toml", *fails)
    assert run.store.newest("encoded", "early") is None
    (row, *_) = audited(run, "early")[2].limits
    assert (row["limit"], row["threshold"], row["passed"]) == ("min_bytes_per_token", 99, False)


def test_a_gate_that_lacks_text_stops_the_run_and_says_which(run: InProcess, project: Path) -> None:
    few = ("holdout.num_documents={few=1}", "holdout.share=0.0000001", "audit.max_fertility=99")
    with pytest.raises(GateError, match=r"'many': max_fertility: none of its doc.* raise holdout.share"):
        run.run(project / "tiny.toml", "name=lacks", *few, "audit.on_failure='fail'")
    assert run.store.newest("encoded", "lacks") is None
    run.run(project / "tiny.toml", "name=lacks", *few)
    warnings = audited(run, "lacks")[1]["warnings"]
    assert str(warnings).startswith("gate not measured: 'many': max_fertility")


def test_tables_are_the_same_however_sources_are_put_together(
    run: InProcess, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents, numbers = set(), []
    for enough in (audited_text._PRETOKENS, 1 << 6):
        monkeypatch.setattr(audited_text, "_PRETOKENS", enough)
        run.run(project / "tiny.toml", "name=together", until=["audit"])
        record = read_record(audited(run, "together")[0])
        contents.add(record.content_digest)
        numbers.append(len(record.refs("training")))
    assert (numbers[0], numbers[1] > 2, len(contents)) == (1, True, 1)


def test_held_out_text_is_what_is_read_and_probes_of_the_profile_come_first(run: InProcess, project) -> None:
    own = "{name='ours', text='AB-1234', max_tokens=1}"
    run.run(project / "tiny.toml", "name=held", "holdout.share=0.3", f"audit.probes=[{own}]")
    _, _, summary = audited(run, "held")
    assert (summary.text, summary.vocabulary.unused_in) == ("held_out", "training")
    record = run.store.newest("corpus", "held.validation")
    assert record is not None
    assert summary.overall["num_documents"] == record.metrics["num_documents"]
    first = [summary.probes[0][name] for name in ("group", "probe", "expectation")]
    assert first == ["own", "ours", "at most 1 tokens"]
    with pytest.raises(ProfileError, match="two probes are named 'ours'"):
        run.run(project / "tiny.toml", f"audit.probes=[{own}, {own}]")


def parallel(folder: Path, **texts: str) -> str:
    """Write parallel text; return the setting that names it."""
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return f"audit.parallel={{{', '.join(f'{name} = {str(folder / name)!r}' for name in texts)}}}"


def test_limits_by_language_and_against_another_tokenizer(run: InProcess, project: Path, tmp_path) -> None:
    run.run(project / "tiny.toml", "name=one")
    compared, limit = 'audit.compare_with={use = "tokenizer/one@v1"}', "audit.max_regression=0.0"
    run.run(project / "tiny.toml", "name=one", compared, limit)
    _, _, itself = audited(run, "one")
    assert (itself.gate, set(itself.regressions.values())) == ("passed", {0.0})
    files = parallel(tmp_path, aa="one line\nanother\n", bb="eine lange Zeile\nnoch eine\n")
    more = ("name=two", "train.vocab_size=290", files, compared, "audit.max_premium.bb=1.0", limit)
    run.run(project / "tiny.toml", *more)
    _, _, summary = audited(run, "two")
    failed = {(row["limit"], row["subject"]) for row in summary.limits if row["passed"] is False}
    assert ("max_premium", "bb") in failed
    assert {limit for limit, _ in failed} == {"max_premium", "max_regression"}
    assert all(value > 0 for value in summary.regressions.values())
    assert summary.entropy[0]["normalized_length"] > 1


def test_parallel_text_that_measures_nothing_is_a_gap(run: InProcess, project: Path, tmp_path: Path) -> None:
    for name, texts, says in (
        ("alone", {"eng": "one\ntwo\n"}, "There is one language alone"),
        ("blank", {"eng": "\n\n", "deu": "\n \n"}, "eng has no tokens, so there are no premiums"),
    ):
        run.run(project / "tiny.toml", parallel(tmp_path, **texts), f"name={name}")
        folder, metrics, _ = audited(run, name)
        text = (folder / "summary.md").read_text("utf-8")
        assert says in text
        assert not re.search(r"\b(nan|inf|None)\b|\| \* \|", text)
        assert ("max_premium" in metrics) == (name == "alone")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("audit.max_premium=2", "audit.max_premium needs parallel text"),
        ("audit.max_regression=0.1", "audit.max_regression needs a tokenizer"),
        ("audit.reference=eng", "audit.reference needs parallel text"),
        ("audit.parallel={'*' = 'a.txt'}", "'\\*' names no language"),
        ("audit.min_bytes_per_token.nowhere=2", "there is no source 'nowhere'; there are"),
        ("audit.parallel={cc='none.txt'}", "audit.parallel.cc='.*none.txt' is no file"),
        ("audit.parallel={aa='two.txt', bb='one.txt'}", "bb has 1 lines and aa 2"),
        ("audit.parallel={aa='two.txt', bb='blank.txt'}", "line 1 of bb is blank, that of aa is not"),
        ("audit.parallel={aa='latin.txt', bb='one.txt'}", r"latin\.txt is not UTF-8 at byte 3"),
    ],
)
def test_limits_and_parallel_text_that_cannot_be(
    run: InProcess, project: Path, monkeypatch, override: str, says: str
) -> None:
    for name, data in {
        "two": b"one\ntwo\n",
        "one": b"eins\n",
        "blank": b"\nzwei\n",
        "latin": b"caf\xe9\n",
    }.items():
        (project / f"{name}.txt").write_bytes(data)
    monkeypatch.chdir(project)
    with pytest.raises((AuditError, ProfileError), match=says):
        run.run(project / "tiny.toml", override)
