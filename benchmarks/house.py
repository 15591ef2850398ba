"""How heavy the house is: lines, files, floors and circles of imports, and the most that each may be.

    python benchmarks/house.py                   # the table; the limits are in pyproject.toml
    python benchmarks/house.py --since main~20   # and what changed since a commit
    python benchmarks/house.py --check           # fail if something is over: one of tests/test_house.py
    python benchmarks/house.py --splinters       # what could be merged or inlined: a list to work from

A line of code is not blank, not a comment and not in a docstring. Floors are the modules of the longest chain
of imports within a folder. A circle is a set of modules that all import each other, the long way round too;
it counts as one floor. Imports within functions count; those for type checking only where it says so.
"""

import argparse
import ast
import gc
import io
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

HOUSE = ("flows/", "tasks/", "tokenizer/")
STORE = ("tasks/store/", "tasks/remote/")
RUN = ("flows/run/",)
PREFECT = ("flows/prefect/",)
COMMANDS = ("flows/cli/", "flows/commands/")
TESTS = "tests"
DOCUMENTS = ("README.md", "docs/**/*.md")
SMALL = 60  # lines

MEASURES = {
    "lines": "lines of flows, tasks, tokenizer",
    "code_lines": "of it code",
    "files": "files",
    "small_files": f"files under {SMALL} lines",
    "store_lines": "store with remotes: lines",
    "store_files": "store with remotes: files",
    "store_floors": "store with remotes: floors",
    "run_lines": "flows/run: lines",
    "run_files": "flows/run: files",
    "prefect_lines": "flows/prefect: lines",
    "command_lines": "command line and commands: lines",
    "circles": "circles of modules",
    "circles_with_types": "and with imports for types",
    "test_lines": "lines of tests",
    "document_words": "words in README and docs",
}

Graph = dict[str, set[str]]


@dataclass(frozen=True)
class Module:
    """A source file; `imports` are the names that it may import from the house, `type_imports` for types."""

    path: str
    tree: ast.Module
    lines: int
    code_lines: int
    imports: set[str]
    type_imports: set[str]


def read_house(root: Path) -> dict[str, Module]:
    """Read the modules of a checkout, by dotted name; a package's `__init__` has the package's."""
    paths = sorted(chain.from_iterable((root / folder).rglob("*.py") for folder in HOUSE))
    modules = [_read(path, path.relative_to(root).as_posix()) for path in paths]
    return {m.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): m for m in modules}


def _read(file: Path, path: str) -> Module:
    text = _text(file)
    tree = ast.parse(text)
    lines = text.splitlines()
    code = {number for number, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"}
    imports: dict[bool, set[str]] = {False: set(), True: set()}
    for statement, for_types in _statements(tree, for_types=False):
        code.difference_update(_docstring_lines(statement))
        if isinstance(statement, ast.ImportFrom):
            names = (f"{statement.module}.{alias.name}" for alias in statement.names)
            imports[for_types].update(name.removeprefix("tokmill.") for name in names)
        elif isinstance(statement, ast.Import):
            imports[for_types].update(alias.name.removeprefix("tokmill.") for alias in statement.names)
    return Module(path, tree, len(lines), len(code), imports[False], imports[True])


def _statements(node: ast.AST, *, for_types: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All statements, and whether only type checkers execute them."""
    yield node, for_types
    in_block = (
        isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(child, for_types=for_types or in_block)


def _docstring_lines(node: ast.AST) -> range:
    match node:
        case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
            return range(first, last + 1)
    return range(0)


def import_graph(modules: dict[str, Module], *, with_types: bool = False) -> Graph:
    """Which module imports which of the others."""
    graph = {}
    for name, module in modules.items():
        imports = module.imports | module.type_imports if with_types else module.imports
        targets = {target if target in modules else target.rpartition(".")[0] for target in imports}
        graph[name] = (targets & modules.keys()) - {name}
    return graph


def components(graph: Graph) -> list[list[str]]:
    """The sets of modules that reach each other (Tarjan), each after those that it imports."""
    low: dict[str, int] = {}
    stack: list[str] = []
    complete: list[list[str]] = []

    def visit(node: str) -> None:
        number = low[node] = len(low)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in low:
                visit(target)
            low[node] = min(low[node], low[target])
        if low[node] == number:
            complete.append(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            low.update(dict.fromkeys(complete[-1], len(graph)))  # no way back to these

    for node in sorted(graph):
        if node not in low:
            visit(node)
    return complete


def circles(graph: Graph) -> list[list[str]]:
    """The components of more than one module."""
    return [sorted(component) for component in components(graph) if len(component) > 1]


def floors(graph: Graph) -> int:
    """The length of the longest chain of imports."""
    floor: dict[str, int] = {}
    for component in components(graph):
        below = chain.from_iterable(graph[name] for name in component)
        floor |= dict.fromkeys(component, 1 + max((floor.get(name, 0) for name in below), default=0))
    return max(floor.values(), default=0)


def measure(root: Path) -> dict[str, int]:
    """Measure a checkout; the keys are those of `MEASURES` and of `[tool.tokmill.house]`."""
    house = read_house(root)
    lines: Counter[tuple[str, ...]] = Counter()
    files: dict[tuple[str, ...], dict[str, Module]] = {}
    for folders in (HOUSE, STORE, RUN, PREFECT, COMMANDS):
        files[folders] = {name: m for name, m in house.items() if m.path.startswith(folders)}
        lines[folders] = sum(module.lines for module in files[folders].values())
    documents = chain.from_iterable(root.glob(pattern) for pattern in DOCUMENTS)
    return {
        "lines": lines[HOUSE],
        "code_lines": sum(module.code_lines for module in house.values()),
        "files": len(house),
        "small_files": sum(m.lines < SMALL and not m.path.endswith("__init__.py") for m in house.values()),
        "store_lines": lines[STORE],
        "store_files": len(files[STORE]),
        "store_floors": floors(import_graph(files[STORE])),
        "run_lines": lines[RUN],
        "run_files": len(files[RUN]),
        "prefect_lines": lines[PREFECT],
        "command_lines": lines[COMMANDS],
        "circles": len(circles(import_graph(house))),
        "circles_with_types": len(circles(import_graph(house, with_types=True))),
        "test_lines": sum(len(_text(path).splitlines()) for path in (root / TESTS).rglob("*.py")),
        "document_words": sum(len(_text(path).split()) for path in documents),
    }


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def measure_commit(commit: str) -> dict[str, int]:
    """Measure the house as it was at a commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=CHECKOUT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="tar")
        return measure(Path(folder))


def splinters(root: Path) -> Iterator[str]:
    """What could be merged or inlined, one finding per line."""
    house = read_house(root)
    importers: Graph = defaultdict(set)
    for name, targets in import_graph(house, with_types=True).items():
        for target in targets:
            importers[target].add(name)
    for name, module in house.items():
        siblings = {importer.rpartition(".")[0] for importer in importers[name]} == {name.rpartition(".")[0]}
        if siblings and len(importers[name]) == 1 and not module.path.endswith("__init__.py"):
            yield f"{module.path}: {module.lines} lines, imported by {importers[name].pop()} alone"
    for module in house.values():
        nodes = list(ast.walk(module.tree))
        uses = Counter(getattr(node, "id", None) or getattr(node, "attr", None) for node in nodes)
        for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            private = function.name.startswith("_") and not function.name.endswith("__")
            if private and uses[function.name] == 1:
                yield f"{module.path}:{function.lineno}: {function.name} is used once"
            if _forwards(function):
                yield f"{module.path}:{function.lineno}: {function.name} forwards"


def _forwards(function: ast.FunctionDef) -> bool:
    """Whether a function does nothing but call another one with some of its own arguments."""
    match [node for node in function.body if not _docstring_lines(node)]:
        case [ast.Return(value=ast.Call() as call) | ast.Expr(value=ast.Call() as call)]:
            arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
            return all(isinstance(argument, ast.Name | ast.Starred) for argument in arguments)
    return False


def table(columns: dict[str, dict[str, int]]) -> str:
    """Lay out columns of measures, by their titles."""
    lines = [" " * 34 + "".join(f"{title:>12}" for title in columns)]
    lines += (
        f"{MEASURES[key]:<34}" + "".join(f"{c[key]:>12,}" for c in columns.values()) for key in MEASURES
    )
    return "\n".join(lines)


def main() -> str | None:
    """Print what the command line asks for; return what is over, if that is to be checked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail if a measure is over its limit")
    parser.add_argument("--since", metavar="COMMIT", help="compare with a commit")
    parser.add_argument("--splinters", action="store_true", help="list what could be merged or inlined")
    options = parser.parse_args()
    gc.disable()  # it would go through all syntax trees again and again, which takes longer than the rest
    if options.splinters:
        print(*splinters(CHECKOUT), sep="\n")
        return None
    most: dict[str, int] = tomllib.loads(_text(CHECKOUT / "pyproject.toml"))["tool"]["tokmill"]["house"]
    now = measure(CHECKOUT)
    columns = {"now": now, "at most": most}
    if options.since:
        then = measure_commit(options.since)
        columns |= {options.since[:11]: then, "change": {key: now[key] - then[key] for key in now}}
    print(table(columns))
    over = [
        f"{MEASURES[key]}: {now[key]:,} is over {key} = {most[key]:_}" for key in now if now[key] > most[key]
    ]
    limits = "shorten or merge something; the limits are in pyproject.toml, [tool.tokmill.house]"
    return "\n".join([*over, limits]) if over and options.check else None


if __name__ == "__main__":
    sys.exit(main())
