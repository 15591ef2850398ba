"""Seed small faults, and see which of them the tests find.

    python benchmarks/mutants.py --out faults.jsonl            # 80 faults; continues an incomplete file
    python benchmarks/mutants.py --out faults.jsonl --table    # the results so far

A fault changes one place of one module: an operator, a comparison, a number by one, a branch that is taken
the other way, a check that is left out. `--seed` and the committed code decide which. Areas take turns, so
that the first faults cover all of them, too. Each fault is made in a copy of a commit, where tests run
until one fails: all that name the module, and those of its folder (`AREAS`), without what is slow or needs a
server. A fault is killed if a test fails, or if they take too much time. In the end, what failed is run
without a fault, and must pass.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
QUICK = "not slow and not server and not browser and not objects and not clusters"

PATIENCE = 1800  # seconds; a fault may let its tests wait for ever
NO_TESTS = 5  # pytest's exit code
MEMORY = 16 << 30  # bytes of address space, because a fault may ask for any number

# Area → folder → test files, of a folder of tests/ and by patterns of names. Subfolders follow their parents.
TOKENIZER, TASKS, FLOWS = "test_tokenizer/test_{}.py", "test_tasks/test_{}.py", "test_flows/test_{}.py"
AREAS: dict[str, dict[str, tuple[str, str]]] = {
    "kernels": {
        "tokenizer/kernels": (TOKENIZER, "kernels encoding training split_* decoders word_bpe normalizer*"),
        "tokenizer/byte_bpe": (TOKENIZER, "encoding training sampling long_and_short_texts"),
        "tokenizer/char_bpe": (TOKENIZER, "char_bpe sentence_training sampling"),
        "tokenizer/longest_match": (TOKENIZER, "longest_match"),
        "tokenizer/merging": (
            TOKENIZER,
            "training char_bpe word_bpe wordpiece longest_match sentence_training",
        ),
        "tokenizer/unigram": (TOKENIZER, "unigram* sampling"),
        "tokenizer/word_bpe": (TOKENIZER, "word_bpe sampling"),
        "tokenizer/wordpiece": (TOKENIZER, "wordpiece*"),
        "tasks/kernels": (
            TASKS,
            "document_kernels mix* balance scoring count encode packing* sharding",
        ),
    },
    "stages": {
        "tasks/audit": (TASKS, "audit_*"),
        "tasks/balance": (TASKS, "balance stages"),
        "tasks/card": (TASKS, "cards stages"),
        "tasks/count": (TASKS, "count balance stages"),
        "tasks/embeddings": (TASKS, "embeddings stages"),
        "tasks/encode": (TASKS, "encode rearranging stages"),
        "tasks/fim": (TASKS, "packing rearranging stages"),
        "tasks/formats": (TASKS, "count encode embeddings ingest stages"),
        "tasks/formats/files": (TASKS, "array_files damaged encode stages"),
        "tasks/formats/packed": (TASKS, "packed* damaged stages"),
        "tasks/formats/text": (TASKS, "readers_* compression sources sharding"),
        "tasks/holdout": (FLOWS, "holdout"),
        "tasks/ingest": (TASKS, "ingest sources sharding stages"),
        "tasks/mixing": (TASKS, "mix* replanning stages"),
        "tasks/packing": (TASKS, "packing* packed* replanning stages"),
        "tasks/score": (TASKS, "scoring stages"),
        "tasks/takedown": (TASKS, "takedown replanning stages"),
        "tasks/train": (TASKS, "train train_memory stages"),
        "tasks/usage": (TASKS, "usage stages"),
    },
    "store": {"tasks/store": (TASKS, "store_* fingerprints catalog* damaged")},
    "run": {
        "flows/run": (
            FLOWS,
            "execution prefect_tasks caching page_texts bad_input terminal",
        ),
    },
}

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
CHECK = re.compile(r"_?(check|refuse|require|verify|ensure|validate)")


@dataclass(frozen=True)
class Fault:
    """`before` in a file is replaced by `after`; `start` counts bytes from the file's beginning."""

    area: str
    folder: str
    file: str
    line: int
    kind: str
    before: str
    after: str
    start: int


def faults_of(root: Path, area: str, folder: str) -> Iterator[Fault]:
    """Every fault that can be made in a folder."""
    for path in sorted((root / folder).rglob("*.py")):
        source = path.read_bytes()
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for kind, node, after in _changes(ast.parse(source)):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before = source[start:end].decode()
            name = path.relative_to(root).as_posix()
            yield Fault(area, folder, name, node.lineno, kind, before, after, start)


def _changes(tree: ast.AST) -> Iterator[tuple[str, Any, str]]:
    """The kind of each change, the node that it replaces, and by what."""
    for node in _executed(tree):
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS and not _has_text(left, right):
                yield "operator", node, f"({ast.unparse(ast.BinOp(left, SWAPS[type(op)](), right))})"
            case ast.BoolOp(op=op, values=values):
                yield "operator", node, f"({ast.unparse(ast.BoolOp(SWAPS[type(op)](), values))})"
            case ast.AugAssign(target=target, op=op, value=value) if type(op) in SWAPS and not _has_text(
                value
            ):
                yield "operator", node, ast.unparse(ast.AugAssign(target, SWAPS[type(op)](), value))
            case ast.Compare(left=left, ops=[op], comparators=others) if type(op) in SWAPS:
                yield "comparison", node, f"({ast.unparse(ast.Compare(left, [SWAPS[type(op)]()], others))})"
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield "constant", node, f"{value + 1}"
                yield "constant", node, f"({value - 1})"
            case ast.If(test=test, body=[ast.Raise()]):
                yield "check", test, "False"
            case ast.Raise():
                yield "check", node, "pass"
            case ast.Expr(value=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))) if CHECK.match(
                name
            ):
                yield "check", node, "pass"
            case ast.If(test=test) | ast.IfExp(test=test):
                yield "branch", test, f"(not ({ast.unparse(test)}))"


def _has_text(*nodes: ast.AST) -> bool:
    return any(
        isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str | bytes)
        for node in nodes
    )


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree but annotations, decorators, imports for types, and f-strings (no positions)."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list"} or isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _executed(child)


def choose(root: Path, number: int, seed: int) -> list[Fault]:
    """Choose faults: areas take turns; a kind is drawn, then a file with such faults, then one of them."""
    pools: dict[str, dict[str, dict[str, list[Fault]]]] = {}
    for area, folders in AREAS.items():
        faults = {(f.file, f.start, f.after): f for folder in folders for f in faults_of(root, area, folder)}
        pool = pools[area] = defaultdict(lambda: defaultdict(list))
        for _, fault in sorted(faults.items()):
            pool[fault.kind][fault.file].append(fault)
    source = random.Random(seed)
    chosen: dict[Fault, None] = {}
    while len(chosen) < number:
        pool = pools[list(AREAS)[len(chosen) % len(AREAS)]]
        files = pool[source.choice(sorted(pool))]
        chosen[source.choice(files[source.choice(sorted(files))])] = None
    return list(chosen)


class Copy:
    """A copy of a commit with machine code of its own, and its tests."""

    def __init__(self, folder: Path, commit: str, cpu_seconds: int) -> None:
        self.root = folder / "checkout"
        self.root.mkdir()
        self._cpu_seconds = cpu_seconds
        archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=self.root, input=archive.stdout, check=True)
        kernels = Path(os.environ.get("TOKMILL_KERNEL_CACHE", "~/.cache/tokmill/kernels")).expanduser()
        if kernels.is_dir():
            shutil.copytree(kernels, folder / "kernels")
        self._environment = os.environ | {
            "CI": "true",
            "PYTHONPATH": str(self.root),
            "TOKMILL_KERNEL_CACHE": str(folder / "kernels"),
            "TOKMILL_SHARED_DATA": os.environ.get("TOKMILL_SHARED_DATA", f"{CHECKOUT.parent}/shared/data"),
        }

    def run(self, fault: Fault) -> dict[str, Any]:
        """Run the tests of a fault's folder with it; return what came of it."""
        path = self.root / fault.file
        source = path.read_bytes()
        end = fault.start + len(fault.before.encode())
        path.write_bytes(source[: fault.start] + fault.after.encode() + source[end:])
        start = time.monotonic()
        try:
            code, failed = self._pytest(self._tests(fault))
        finally:
            path.write_bytes(source)
        seconds = round(time.monotonic() - start)
        if code == NO_TESTS:
            sys.exit(f"no tests for {fault.folder}")
        result = {None: "timed out", 0: "survived"}.get(code, "killed")
        return {"result": result, "by": failed.removeprefix("tests/"), "seconds": seconds}

    def expect_to_pass(self, tests: list[str]) -> None:
        """Exit if a test fails without a fault."""
        code, failed = self._pytest(tests) if tests else (0, "")
        if code != 0:
            sys.exit(f"does not pass without a fault: {failed or 'in the time'}")

    def _tests(self, fault: Fault) -> list[str]:
        group, names = AREAS[fault.area][fault.folder]
        tests = self.root / "tests"
        package, stem = Path(fault.file).parent.as_posix().replace("/", "."), Path(fault.file).stem
        naming = re.compile(rf"tokmill\.{package}(\.{stem}\b| import .*\b{stem}\b)")
        files = [path for path in sorted(tests.rglob("test_*.py")) if naming.search(path.read_text("utf-8"))]
        files += [path for name in names.split() for path in sorted(tests.glob(group.format(name)))]
        return list(dict.fromkeys(path.relative_to(self.root).as_posix() for path in files))

    def _pytest(self, tests: list[str]) -> tuple[int | None, str]:
        """Return pytest's exit code, None if it took too long, and the test that failed."""
        options = ["-n0", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=self.root,
                env=self._environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (self._cpu_seconds, self._cpu_seconds))
            try:
                code: int | None = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", output.read(), re.MULTILINE)
        return None if code == -signal.SIGKILL else code, failed[1] if failed else ""


def table(lines: list[dict[str, Any]]) -> str:
    """The results by area, and the faults that no test found."""
    results = Counter((line["area"], line["result"]) for line in lines)
    outcomes = ("killed", "timed out", "survived")
    rows = [f"{'':<10}" + "".join(f"{outcome:>11}" for outcome in outcomes)]
    rows += (f"{area:<10}" + "".join(f"{results[area, o]:>11}" for o in outcomes) for area in AREAS)
    for line in lines:
        if line["result"] == "survived":
            rows.append("{file}:{line}: {kind}: {before} -> {after}".format_map(line))
    return "\n".join(rows)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="file of results, JSON lines")
    parser.add_argument("--commit", default="HEAD", help="whose code and tests (default HEAD)")
    parser.add_argument("--number", type=int, default=80, help="faults (default 80)")
    parser.add_argument("--seed", type=int, default=28, help="decides which (default 28)")
    parser.add_argument("--areas", nargs="+", choices=AREAS, default=list(AREAS), help="default: all of them")
    parser.add_argument("--cpu-seconds", type=int, default=400, help="most per fault (default 400)")
    parser.add_argument("--table", action="store_true", help="only show the results so far")
    options = parser.parse_args()
    text = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    if not options.table:
        complete(lines, options)
    print(table(lines))


def complete(lines: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """Make the faults that have no line yet, and append theirs to the list and the file."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder), options.commit, options.cpu_seconds)
        chosen = choose(copy.root, options.number, options.seed)
        done = {(line["file"], line["start"], line["after"]) for line in lines}
        for fault in chosen:
            if fault.area in options.areas and (fault.file, fault.start, fault.after) not in done:
                lines.append(asdict(fault) | copy.run(fault))
                with options.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(lines[-1]) + "\n")
                print(
                    "{result:<10}{file}:{line}: {kind}: {before} -> {after}".format_map(lines[-1]), flush=True
                )
        copy.expect_to_pass(sorted({f"tests/{line['by']}" for line in lines if line["by"]}))


if __name__ == "__main__":
    main()
