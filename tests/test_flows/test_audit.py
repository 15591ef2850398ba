"""The audit in a run: before encoding, on text that is held out, with limits that stop it."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.test_flows.corpora import InProcess, write_project
from tokmill.flows.errors import ProfileError
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.core.errors import AuditError, GateError


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


def summary_of(run: InProcess, name: str = "tiny"):
    record = run.store.newest("audit", name)
    assert record is not None
    return read_summary(run.store.path(record.ref))


def test_a_gate_stops_before_anything_is_encoded(run: InProcess, project: Path) -> None:
    fails = ("name=early", "audit.min_bytes_per_token=99", "audit.on_failure='fail'", "train.vocab_size=301")
    with pytest.raises(GateError, match=r"bytes_per_token=.* is below 99"):
        run.run(project / "tiny.toml", *fails)
    assert run.store.newest("audit", "early") is not None
    assert run.store.newest("encoded", "early") is None
    (row, *_) = summary_of(run, "early").limits
    assert (row["limit"], row["threshold"], row["passed"]) == ("min_bytes_per_token", 99, False)


def test_a_gate_that_lacks_text_stops_the_run_and_says_which(run: InProcess, project: Path) -> None:
    lacks = (
        "name=lacks",
        "holdout.num_documents={few=1}",
        "holdout.share=0.0000001",
        "audit.max_fertility=99",
    )
    with pytest.raises(
        GateError, match=r"'many': max_fertility: none of its documents .* raise holdout.share"
    ):
        run.run(project / "tiny.toml", *lacks, "audit.on_failure='fail'")
    assert run.store.newest("encoded", "lacks") is None
    run.run(project / "tiny.toml", *lacks)
    record = run.store.newest("audit", "lacks")
    assert record is not None
    assert str(record.metrics["warnings"]).startswith("gate not measured: 'many': max_fertility")


def test_held_out_text_is_what_is_read(run: InProcess, project: Path) -> None:
    run.run(project / "tiny.toml", "name=held", "holdout.share=0.3")
    summary = summary_of(run, "held")
    assert summary.text == "held_out"
    record = run.store.newest("corpus", "held.validation")
    assert record is not None
    assert summary.overall["num_documents"] == record.metrics["num_documents"]
    assert summary.vocabulary.unused_in == "training"


def test_limits_by_language_and_against_another_tokenizer(
    run: InProcess, project: Path, tmp_path: Path
) -> None:
    run.run(project / "tiny.toml", "name=one")
    (tmp_path / "a.txt").write_text("one line\nanother\n")
    (tmp_path / "b.txt").write_text("eine lange Zeile\nnoch eine\n")
    files = f"audit.parallel={{aa = '{tmp_path}/a.txt', bb = '{tmp_path}/b.txt'}}"
    compared = 'audit.compare_with={use = "tokenizer/one@v1"}'
    run.run(
        project / "tiny.toml",
        *("name=two", "train.vocab_size=290", files, compared),
        *("audit.max_premium.bb=1.0", "audit.max_regression=0.0"),
    )
    summary = summary_of(run, "two")
    failed = {(row["limit"], row["subject"]) for row in summary.limits if row["passed"] is False}
    assert ("max_premium", "bb") in failed
    assert {limit for limit, _ in failed} == {"max_premium", "max_regression"}
    assert all(value > 0 for value in summary.regressions.values())
    assert summary.entropy[0]["normalized_length"] > 1


def test_a_tokenizer_compared_with_itself_is_no_regression(run: InProcess, project: Path) -> None:
    run.run(project / "tiny.toml", "name=same")
    itself = ('audit.compare_with={use="tokenizer/same@v1"}', "audit.max_regression=0")
    run.run(project / "tiny.toml", "name=same", *itself)
    summary = summary_of(run, "same")
    assert (summary.gate, set(summary.regressions.values())) == ("passed", {0.0})


def test_probes_of_the_profile_come_first(run: InProcess, project: Path) -> None:
    own = "{name='ours', text='AB-1234', max_tokens=1}"
    run.run(project / "tiny.toml", "name=probed", f"audit.probes=[{own}]")
    summary = summary_of(run, "probed")
    assert summary.probes[0]["group"] == "own"
    assert (summary.probes[0]["probe"], summary.probes[0]["expectation"]) == ("ours", "at most 1 tokens")
    with pytest.raises(ProfileError, match="two probes are named 'ours'"):
        run.run(project / "tiny.toml", f"audit.probes=[{own}, {own}]")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("audit.max_premium=2", "audit.max_premium needs parallel text"),
        ("audit.max_regression=0.1", "audit.max_regression needs a tokenizer"),
        ("audit.reference=eng", "audit.reference needs parallel text"),
        ("audit.parallel={'*' = 'a.txt'}", "'\\*' names no language"),
        ("audit.parallel={' ' = 'a.txt'}", "' ' names no language"),
        ("audit.min_bytes_per_token.nowhere=2", "there is no source 'nowhere'; there are"),
        ("audit.parallel={cc='none.txt'}", "audit.parallel.cc='.*none.txt' is no file"),
    ],
)
def test_limits_for_what_does_not_exist(run: InProcess, project: Path, override: str, says: str) -> None:
    with pytest.raises((AuditError, ProfileError), match=says):
        run.run(project / "tiny.toml", override)


@pytest.mark.parametrize(
    ("aa", "bb", "says"),
    [
        (b"one\ntwo\n", b"eins\n", "bb has 1 lines and aa 2"),
        (b"one\ntwo\n", b"", "bb has 0 lines and aa 2"),
        (b"one\ntwo\n", b"\nzwei\n", "line 1 of bb is blank, that of aa is not"),
        (b"caf\xe9\n", b"cafe\n", r"a\.txt is not UTF-8 at byte 3"),
    ],
)
def test_parallel_files_that_do_not_match(
    run: InProcess, project: Path, tmp_path: Path, aa: bytes, bb: bytes, says: str
) -> None:
    (tmp_path / "a.txt").write_bytes(aa)
    (tmp_path / "b.txt").write_bytes(bb)
    with pytest.raises(AuditError, match=says):
        run.run(project / "tiny.toml", f"audit.parallel={{aa='{tmp_path}/a.txt', bb='{tmp_path}/b.txt'}}")


@pytest.mark.parametrize(
    ("texts", "says", "metric"),
    [
        ({"eng": "one\ntwo\n"}, "There is one language alone", 1.0),
        ({"eng": "\n\n", "deu": "\n \n"}, "eng has no tokens, so there are no premiums", None),
        ({"eng": "one\n", "<b>'; DROP TABLE artifacts; --": "eins\n"}, "| <b>'; DROP TABLE artifacts; --", 1),
    ],
)
def test_parallel_text_that_measures_nothing_is_a_gap(
    run: InProcess, project: Path, tmp_path: Path, texts: dict[str, str], says: str, metric: float | None
) -> None:
    files = {language: tmp_path / f"{number}.txt" for number, language in enumerate(texts)}
    for language, text in texts.items():
        files[language].write_text(text, "utf-8")
    given = ", ".join(f'"{language}" = "{file}"' for language, file in files.items())
    name = f"gaps{len(says)}"
    run.run(project / "tiny.toml", f"audit.parallel={{{given}}}", f"name={name}")
    record = run.store.newest("audit", name)
    assert record is not None
    text = (run.store.path(record.ref) / "summary.md").read_text("utf-8")
    assert says in text
    assert "| * |" not in text
    assert not re.search(r"\b(nan|inf|None)\b", text)
    assert ("max_premium" in record.metrics) == (metric is not None)
    (table,) = run.store.path(record.ref).rglob("vocab_parity.parquet")
    assert len(pq.read_table(table)) == len(texts) + 1
