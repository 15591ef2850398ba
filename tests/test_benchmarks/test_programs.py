"""The benchmarks: wrong results never count, a side that fails is shown as such, and the commands start."""

import ast
import gc
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from side_by_side import tables
from side_by_side.checks import SameDocuments, SameMerges, SamePieces
from side_by_side.outcomes import Case, Outcome, Verdict, ratio
from side_by_side.processes import Process, SideError

CASE = Case("cl100k", "english", num_bytes=2_000_000, num_documents=2)
TIMES = {"cpu": 0.5, "wall": 0.6, "before": 1 << 20, "peak": 3 << 20}


def measured(side: str, seconds: float, verdict: Verdict) -> Outcome:
    """A side's outcome after one round."""
    outcome = Outcome(CASE, side)
    outcome.add("cold", TIMES | {"cpu": seconds}, verdict)
    return outcome


def test_what_benchmarks_import_of_ours_exists(checkout: Path, request: pytest.FixtureRequest) -> None:
    thresholds = gc.get_threshold()  # which `tokmill.__main__` changes for its process
    request.addfinalizer(lambda: gc.set_threshold(*thresholds))
    for script in (checkout / "benchmarks").glob("*.py"):
        for node in ast.walk(ast.parse(script.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tokmill."):
                module = importlib.import_module(str(node.module))
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert missing == [], f"{script.name}, line {node.lineno}: {node.module}"


@pytest.mark.parametrize("command", ["encode", "train", "split", "families", "families_train"])
def test_help_shows_examples_wherever_python_runs(command: str, checkout: Path, tmp_path: Path) -> None:
    script = checkout / "benchmarks" / f"{command}.py"

    # -S: nothing that is installed can be imported
    done = subprocess.run(
        [sys.executable, "-S", str(script), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert f"python benchmarks/{command}.py --" in done.stdout


def test_ids_are_right_only_if_every_document_has_those_of_the_reference() -> None:
    check = SameDocuments("tiktoken", "ids")

    assert not check.judge("gigatoken", {"documents": ["a", "b"]}).right  # nobody has said what is right
    assert check.judge("tiktoken", {"documents": ["a", "b"]}).right
    assert check.judge("tokmill", {"documents": ["a", "b"]}).right
    wrong = check.judge("gigatoken", {"documents": ["a", "c"]})
    assert not wrong.right
    assert "1 of 2 documents, first in document 1" in wrong.says
    assert not check.judge("fastokens", {"documents": ["a"]}).right
    assert not check.judge("tiktoken", {"documents": ["b", "b"]}).right  # itself, the second time


def test_merges_are_right_only_if_equal_or_alike_under_another_tie_rule() -> None:
    check = SameMerges("tokenizers", ["tokmill"], ["sentencepiece"])
    reference = {"merges": [["61", "62"], ["63", "64"]], "tokens": ["6162", "6364"], "bytes_per_token": 4.0}
    turned = reference | {"merges": reference["merges"][::-1], "tokens": reference["tokens"][::-1]}

    assert check.judge("tokenizers", reference).right
    assert check.judge("tokmill", reference).right
    assert not check.judge("tokmill", turned).right
    assert not check.judge("tokmill", reference | {"merges": reference["merges"][:1]}).right
    assert check.judge("rustbpe", turned | {"merges": None}).right
    assert not check.judge("rustbpe", turned | {"bytes_per_token": 3.9}).right
    assert not check.judge("rustbpe", turned | {"tokens": ["6162"]}).right
    other = check.judge("sentencepiece", turned | {"tokens": ["6162"], "bytes_per_token": 3.0})
    assert other.right
    assert not other.same_work


def test_pieces_are_right_if_they_compress_as_well_as_the_reference() -> None:
    check = SamePieces("sentencepiece")
    reference = {"pieces": ["a", "b", "ab", "ba"], "bytes_per_token": 4.0, "unknown": 0.01}

    assert not check.judge("tokmill", reference).right  # nobody has said what is right
    assert check.judge("sentencepiece", reference).right
    same = check.judge("tokmill", reference)
    assert same.right
    assert "100.00% of 4 pieces" in same.says
    other = check.judge(
        "tokmill", {"pieces": ["a", "b", "ab", "aa"], "bytes_per_token": 3.99, "unknown": 0.0}
    )
    assert other.right
    assert "75.00% of 4 pieces in common, -0.25% bytes per token" in other.says
    assert not check.judge("tokmill", reference | {"bytes_per_token": 3.97}).right
    assert not check.judge("tokmill", reference | {"unknown": 0.02}).right


def test_a_wrong_result_is_in_no_ratio_and_stands_in_brackets() -> None:
    ours = measured("tokmill", 0.1, Verdict(True, "all ids equal"))
    right = measured("tiktoken", 1.0, Verdict(True, "the reference"))
    wrong = measured("gigatoken", 0.05, Verdict(False, "other ids"))

    assert ratio(ours, right, "cold") == pytest.approx(10)
    assert ratio(ours, wrong, "cold") is None
    table = tables.ratios([ours, right, wrong], "cold")
    assert "| english | 10.0× | (0.50×) | **10.0×** tiktoken |" in table
    assert tables.notes([ours, right, wrong]) == ["- gigatoken, cl100k, english: other ids"]


def test_other_work_is_never_the_fastest_peer_and_one_wrong_round_spoils_a_side() -> None:
    ours = measured("tokmill", 0.1, Verdict(True, "all merges equal"))
    right = measured("tokenizers", 1.0, Verdict(True, "the reference"))
    other = measured("sentencepiece", 0.5, Verdict(True, "other work", same_work=False))
    assert "| english | 10.0× | 5.0× | **10.0×** tokenizers |" in tables.ratios([ours, right, other], "cold")
    spoilt = measured("gigatoken", 0.1, Verdict(False, "other ids"))
    spoilt.add("cold", TIMES, Verdict(True, "all ids equal"))
    assert not spoilt.counts


def test_a_side_that_cannot_be_had_says_why() -> None:
    with Process() as process, pytest.raises(SideError, match=r"ModuleNotFoundError.*nothing"):
        process.ask({"do": "open", "kind": "nothing", "side": "", "text": "", "options": {}}, timeout=60)


def test_a_side_that_does_not_answer_in_time_is_given_up() -> None:
    with Process() as process, pytest.raises(SideError, match="no result within 0 s"):
        process.ask({"do": "fresh"}, timeout=0)


@pytest.mark.slow
def test_a_whole_run_measures_checks_and_prints(checkout: Path, tmp_path: Path) -> None:
    text = tmp_path / "texts.jsonl"
    documents = ["It's 1234 o'clock,\n\n  isn't it?", "", "今天天气很好 Größe\u0301"]
    text.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    options = ["--here", "--pattern", "gpt2", "--repeat", "1", str(text)]

    done = subprocess.run(
        [sys.executable, str(checkout / "benchmarks" / "split.py"), *options],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "| texts.jsonl, 0.0 MB | tokmill |" in done.stdout
    assert "all cuts equal" in done.stdout


@pytest.mark.shared_data
@pytest.mark.slow
def test_packing_runs_without_peers(shared_data: Path, checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "vocabs").mkdir()
    (tmp_path / "corpora").mkdir()
    shutil.copy(shared_data / "vocabs" / "cl100k_base.tiktoken", tmp_path / "vocabs")
    lines = [json.dumps({"text": f"document {number} " * (1 + number % 40)}) for number in range(300)]
    few = zstandard.compress("\n".join(lines).encode())
    (tmp_path / "corpora" / "few.jsonl.zst").write_bytes(few)
    parts = [word for part in ("strategies", "disk", "memory") for word in ("--only", part)]
    options = ["--length", "64", "--repeat", "1", "--documents", "5000", "--data", str(tmp_path)]
    command = [sys.executable, str(checkout / "benchmarks" / "packing.py"), *parts, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for row in ("| 64 | best_fit | ", "| 64 | packed | ", "planned 5,000 documents"):
        assert row in done.stdout
