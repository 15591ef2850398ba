"""The command line: help, wrong usage, failures, imports; and the commands that texts name exist."""

import ast
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from tests.effort import fuzz_seconds
from tests.hostile_names import HOSTILE
from tests.test_flows.commands import Tokmill, clean_environment
from tests.test_tasks.store_stages import ask
from tokmill.flows.cli.app import app
from tokmill.flows.commands.main import main
from tokmill.flows.profile import load_profile
from tokmill.tasks.formats.packed.shard_format import FORMATS
from tokmill.tasks.store import Store
from tokmill.tokenizer.core.errors import TokenizerError


def commands_of(group, *words):
    """Yield the words of each command that a person can type, and the command; those of groups, too."""
    for name, command in group.commands.items():
        if getattr(command, "invoke_without_command", True):  # not a mere group
            yield (*words, name), command
        yield from commands_of(command, *words, name) if hasattr(command, "commands") else ()


COMMANDS = dict(commands_of(get_command(app)))


def test_help_fits_on_a_screen_with_a_line_for_each_command(tokmill: Tokmill) -> None:
    out = tokmill("--help", COLUMNS="80").out.splitlines()
    assert len(out) <= 40
    assert not [line for line in out if line.startswith("│  ")]  # each description in one line
    listed = {line.split()[1] for line in out if line.startswith("│ ") and line[2] != " "}
    assert listed >= {words[0] for words in COMMANDS}
    for group in ("store", "vocab", "data", "server", "runs"):
        listed = tokmill(group, "--help", COLUMNS="100").out.partition("─ Commands")[2].splitlines()
        assert not [line for line in listed if line.startswith("│  ")]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_examples(tokmill: Tokmill, words: tuple[str, ...]) -> None:
    shown = tokmill(*words, "--help", COLUMNS="100")
    assert shown.code == 0
    assert f"$ tokmill {' '.join(words)}" in shown.out


@pytest.mark.parametrize(("script", "page"), [("cli", "cli.md"), ("keys", "profiles.md")])
def test_made_pages_say_what_help_and_profiles_say(checkout, monkeypatch, script, page) -> None:
    monkeypatch.syspath_prepend(str(checkout / "docs"))
    monkeypatch.setenv("COLUMNS", "100")  # restored afterwards
    text = (checkout / "docs" / page).read_text(encoding="utf-8")
    is_current = import_module(script).made(text) == text
    assert is_current, f"run: python docs/{script}.py"


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_help_and_guides_name_every_packed_format(tokmill: Tokmill, checkout: Path, known) -> None:
    assert known.name in tokmill("data", "export", "--help", COLUMNS="100").out  # flows/commands/data.py
    formats, packing = (texts_of(checkout / "docs" / f"{page}.md") for page in ("formats", "packing"))
    assert f"| `{known.names[0].format('00000')}`" in formats
    assert f"`{known.name}`" in packing


def texts_of(path: Path) -> str:
    """The text of a page, or the texts in a module, in which values that are put in are `X`."""
    if path.suffix == ".md":
        return path.read_text("utf-8")
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        values = [part.value if isinstance(part, ast.Constant) else "X" for part in parts]
        found.append("".join(value for value in values if isinstance(value, str)))
    return "\n".join(found)


def test_every_command_and_option_that_a_text_names_exists(checkout: Path) -> None:
    """In help, docstrings, messages, documents and the README."""
    code = [path for folder in ("flows", "tasks", "tokenizer") for path in (checkout / folder).rglob("*.py")]
    named = set()
    for path in [*code, *(checkout / "docs").glob("*.md"), checkout / "README.md"]:
        for mark, line in re.findall(r"(?m)(^|`|[$&|] |=\S+ )tokmill ([^`\n|#]*)", texts_of(path)):
            words = [word for word in line.split() if word[0] not in "-["]
            command = COMMANDS.get(tuple(words[:2])) or COMMANDS.get(tuple(words[:1])) or get_command(app)
            known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            unknown = {*re.findall(r"(?<![\w-])--[a-z-]+", line)} - known - {"--help"}
            groups = {each[0] for each in COMMANDS}
            assert not unknown, f"{path}: tokmill {line}"
            is_text = not (mark and words and words[0].islower())
            assert is_text or words[0] in groups, f"{path}: tokmill {line}"
            named.add(command.name)
    assert len(named) > 20


MANY = ",".join(map(str, range(300, 1301)))
UNTEXT = ("\udc80", "a\udcffb", "--store=\udc80", "--set=a=\udc80")
OWN = "[sources.a]\nfiles = ['x']\n[pack]\nsequence_length = 0"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "Usage: tokmill"),
        (("rnu",), 2, "'run'"),
        (("plan", "smok"), 2, "tokmill: profile 'smok'.*did you mean smoke[?]"),
        (("run", "own.toml"), 2, "pack.sequence_length=0 must be at least 8"),
        (("plan", "smoke", "--set", "pack.sequence_lenght=8"), 2, "did you mean pack.sequence_length[?]"),
        (("profiles", "--keys", "pakc"), 2, "did you mean pack[?]"),
        (("plan", "none.toml"), 1, "matches no file"),
        *(
            ((*words,), 2, "there is no store at")
            for words in (["ls"], ["show", "card/x"], ["store", "verify"])
        ),
        (("ls", "--store", "s3://me:secret@bucket/store"), 2, "s3://…@bucket/store.*AWS_ACCESS_KEY_ID"),
        (("run", "smoke", "--store", "own.toml/s"), 2, "own.toml/s cannot be created .*name another with"),
        (("vocab", "suspects", "usage/own", "--limit", str(1 << 63)), 2, "--limit"),
        (("init", "own.toml", "--source", "a=own.toml"), 2, "--force"),
        *((("ls", word), 2, "is not UTF-8 text") for word in (*UNTEXT, "text/o\0ne")),
        (("vocab", "sweep", "two.toml", "--plan", f"--temperature={2**63 - 1}"), 2, "less than or equal to"),
        (("vocab", "sweep", "two.toml", "--plan", f"--vocab-size={MANY}"), 2, "at most 1000"),
        (("plan", "two.toml", "--set=" + "a." * 200_000 + "b=1"), 2, "not a dotted key"),
        (("plan", "deep.toml"), 2, "nested more than"),
        (("ls", "--store=file://["), 2, "a URL"),
    ],
    ids=range(24),
)
def test_wrong_usage_is_one_message_with_a_fix(
    tokmill: Tokmill, arguments: tuple[str, ...], code: int, says: str
) -> None:
    for name, text in {
        "own.toml": OWN,
        "two.toml": '[sources.own]\nfiles = ["own.toml"]\n',
        "deep.toml": "a." * 200_000 + "b = 1",
        "none.toml": "[sources.a]\nfiles = ['nothing/*.txt']",
    }.items():
        (tokmill.folder / name).write_text(text)
    done = tokmill(*arguments)
    assert done.code == code, done.err
    assert re.search(says, " ".join((done.err + done.out).split()))
    assert "Traceback" not in done.err
    assert "secret@" not in done.err
    assert not tokmill.store.exists()


def test_a_home_that_prefect_cannot_use_is_told_before_anything_starts(tokmill: Tokmill) -> None:
    (tokmill.folder / "file").write_text("")
    prefect = Tokmill(tokmill.folder, tokmill.environment)
    for command in (("run", "smoke"), ("up",)):
        done = prefect(*command, PREFECT_HOME="file/home")
        assert (done.code, "file/home ([Errno 20] Not a dir" in done.err) == (1, True)
        assert "; set PREFECT_HOME to " in done.err


def test_a_long_message_is_broken_between_words_on_a_terminal_only(capsys, monkeypatch) -> None:
    main(["plan", "smok", "--set", "a"])
    whole = capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    main(["plan", "smok", "--set", "a"])
    first, *others = capsys.readouterr().err.splitlines()
    assert all(len(line) <= 40 and line.startswith("    ") for line in others)
    assert " ".join([first, *(line.strip() for line in others)]) == whole.strip()


def test_debugging_shows_the_traceback_and_notebooks_else_the_message(tokmill: Tokmill, monkeypatch) -> None:
    assert "Traceback" in tokmill("plan", "smok", TOKMILL_DEBUG="1").err
    assert len(tokmill("plan", "smok").err.splitlines()) == 1
    error = TokenizerError("load: it is gone")
    assert error._render_traceback_() == ["TokenizerError: load: it is gone"]
    monkeypatch.setenv("TOKMILL_DEBUG", "1")
    assert not hasattr(error, "_render_traceback_")  # IPython complains of one that raises


# What keeps the exception, as Prefect's states do, until the interpreter has ended.
FAILING = """
import sys, threading
import duckdb
from tokmill.flows.cli.app import app
from tokmill.flows.commands.main import main
from tokmill.tasks.core.errors import TaskError
kept = []
@app.command()
def counting():
    try:
        counted()
    except TaskError as error:
        kept.append(error)
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        raise
def counted():
    rows = duckdb.connect().execute("SELECT 1")
    raise TaskError("count: it failed")
sys.exit(main(["counting"]))
"""


def test_a_command_that_fails_says_nothing_after_its_message() -> None:
    done = subprocess.run([sys.executable, "-c", FAILING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "tokmill: count: it failed\n")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tokmill", "profiles", "--keys"]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
    with subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **piped) as child:
        child.stdout.close()
        assert child.stderr.read() == b""


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    for closed in (">&-", "<&- >&- 2>&-"):
        command = f"{shlex.quote(sys.executable)} -m tokmill profiles {closed}"
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def test_a_removed_working_directory_is_named(tmp_path: Path) -> None:
    said = "tokmill: the working directory was removed"
    command = f'rmdir "$PWD" && {shlex.quote(sys.executable)} -P -m tokmill plan smoke'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.partition(";")[0]) == (1, said)


def test_an_output_that_lacks_a_character_shows_its_number(monkeypatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["profiles"]) == 0
    out.write("é")
    out.flush()
    assert out.buffer.getvalue().endswith(b"\\xe9")


def test_profiles_are_listed_with_their_keys(tokmill: Tokmill) -> None:
    assert {"quickstart", "smoke"} <= set(tokmill("profiles").out.split())
    listed = {one["name"]: one for one in tokmill("profiles", "--json").document}
    assert listed["smoke"]["pack"] == load_profile("smoke").resolved()["pack"]
    keys = tokmill("profiles", "--keys", "pack").out
    assert ("sequence_length" in keys, "vocab_size" in keys) == (True, False)


# What takes a tenth of a second or more to import, or belongs to an extra.
HEAVY = ("prefect", "numba", "llvmlite", "fsspec", "s3fs", "dask", "distributed", "ray", "httpx", "fastapi")
OF_A_PROFILE = ("numpy", "pyarrow", "duckdb")
LOADED = """
import sys
from tokmill.__main__ import main
sys.argv = ["tokmill", *{arguments!r}]
try:
    main()
finally:
    print([name for name in {names!r} if name in sys.modules], file=sys.stderr)
"""


def loaded_by(folder: Path, names: tuple[str, ...], *arguments: str) -> str:
    """Run a command where no server is configured; return which of these modules it has imported."""
    (folder / "home").mkdir(exist_ok=True)
    environment = clean_environment(HOME=str(folder / "home"), TOKMILL_STORE=str(folder / "store"))
    code = [sys.executable, "-c", LOADED.format(arguments=list(arguments), names=names)]
    done = subprocess.run(code, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[-1]


def test_commands_that_make_nothing_import_nothing_heavy(tmp_path: Path, checkout: Path) -> None:
    """The last is an unchanged run, which must begin in a second: it starts no server, and is recorded."""
    assert loaded_by(tmp_path, ("prefect",), "run", "smoke", "--no-prefect") == "[]"
    for command in ("--version", "--help", "run --help", "ls", "plan smoke", "run smoke"):
        light = HEAVY + OF_A_PROFILE * command.startswith(("-", "run -"))
        assert loaded_by(tmp_path, light, *command.split()) == "[]", command
    runs = [json.loads(path.read_bytes()) for path in tmp_path.glob("store/runs/*.json")]
    assert [run["state"] for run in runs] == ["completed"] * 2

    page = (checkout / "docs" / "cli.md").read_text(encoding="utf-8")  # it has the digests of today
    records = [json.loads(path.read_bytes()) for path in tmp_path.glob("store/*/*/record.json")]
    made = {record["kind"]: record["fingerprint"][:16] for record in records}
    kinds = ("packed", "tokenizer", "tokenizer_card", "card", "audit")
    missing = [kind for kind in kinds if f"tokmill-store/{kind}/{made[kind]}" not in page]
    assert missing == [], "run: python docs/refresh.py docs/cli.md"


NUMBERS = f"{2**63 - 1} {2**63} {-(2**63) - 1} {'1' * 400} 1e309 nan -0".split()


LONG = (
    "a.b=1",
    "a" * 5000,
    "a." * 50_000 + "b=1",
    "]" * 2000,
    "1," * 3000 + "2",
    "2026-99-99",
    "é",
    "--",
    "@",
)


PLACES = ("http://[", "s3://", "~nobody/x", "own.toml", "text/one", "latest", "own.txt", ".")


VALUES = (*NUMBERS, *LONG, *PLACES, *UNTEXT, *HOSTILE.values())
# What serves, measures for seconds, or runs: `plan` has the same profiles and settings as `run`.
LEFT_OUT = {"up", "work", "deploy", "doctor", "run"}


def command_lines(draw: random.Random) -> list[list[str]]:
    """A line for each parameter of each command, in any order, with one value that was not expected there."""
    lines = []
    for words, command in COMMANDS.items():
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        options = [each for each in command.params if each.param_type_name == "option" and not each.is_flag]
        for odd in () if words[-1] in LEFT_OUT else (*arguments, *options):
            known = {each: draw.choice(["own.toml", "text/one", "own.txt", "latest"]) for each in arguments}
            values = {**known, odd: draw.choice(VALUES)}
            line = [
                values[each] if each in arguments else f"{each.opts[0]}={values[each]}" for each in values
            ]
            lines.append([*words, *line, *(["--plan"] if words[-1] == "sweep" else [])])
    draw.shuffle(lines)
    return lines


@pytest.mark.slow
def test_no_command_line_ends_in_a_traceback(tokmill: Tokmill) -> None:
    (tokmill.folder / "own.txt").write_text("some text\n")
    (tokmill.folder / "own.toml").write_text('[sources.own]\nfiles = ["own.txt"]\n')
    store = Store.open(tokmill.store)
    store.tag(store.realize(ask("one")).ref, "prod")
    store.realize(ask("two", text="b"))
    seed, until = random.randrange(1 << 32), time.monotonic() + fuzz_seconds(12)
    for line in command_lines(random.Random(seed)):
        done = tokmill(*line)
        assert done.code in (0, 1, 2), (seed, line)
        assert "a bug in tokmill" not in done.err, (seed, line, done.err)
        if time.monotonic() > until:
            break
