"""The command line without a run: help, versions, exit codes, and how quickly it starts."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import pytest
from typer.main import get_command

from tokmill.flows.cli.app import app
from tokmill.flows.commands.main import main
from tokmill.flows.profile import load_profile


def commands_of(group, *words):
    """Yield every command that a person can type, with those of groups."""
    for name, command in group.commands.items():
        if getattr(command, "invoke_without_command", True):  # not a mere group
            yield " ".join((*words, name))
        yield from commands_of(command, *words, name) if hasattr(command, "commands") else ()


COMMANDS = sorted(commands_of(get_command(app)))
HEAVY = ("prefect", "numba", "duckdb", "pyarrow")


@pytest.fixture
def tokmill(capsys, monkeypatch, tmp_path):
    """Run a command in an empty folder; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_help_lists_every_command(tokmill):
    code, out, _ = tokmill("--help")
    assert code == 0
    for command in COMMANDS:
        assert f" {command.split()[0]} " in out


def test_help_fits_on_a_screen_with_a_line_for_each_command(tokmill, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = {command.split()[0] for command in COMMANDS}
    _, out, _ = tokmill("--help")
    assert len(out.splitlines()) <= 40
    assert {line.split()[1] for line in out.splitlines() if line.startswith("│ ") and line[2] != " "} >= names
    for group in ("store", "vocab", "data", "server", "runs"):
        listed = tokmill(group, "--help")[1].partition("─ Commands")[2].splitlines()
        assert not [line for line in listed if line.startswith("│  ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(tokmill, command):
    code, out, _ = tokmill(*command.split(), "--help")
    assert code == 0
    assert f"$ tokmill {command}" in out


def test_the_guide_says_what_the_help_says(checkout, monkeypatch):
    monkeypatch.syspath_prepend(str(checkout / "docs"))
    monkeypatch.setenv("COLUMNS", "100")  # restored afterwards
    page = (checkout / "docs" / "cli.md").read_text(encoding="utf-8")
    assert import_module("cli").made(page) == page, "run: python docs/cli.py"


def test_every_option_that_a_text_names_exists(checkout):
    """In help, docstrings, messages and documents: `tokmill COMMAND … --option`."""
    options = {}
    for command in COMMANDS:
        found = get_command(app)
        for word in command.split():
            found = found.commands[word]
        options[command] = {
            name for parameter in found.params for name in [*parameter.opts, *parameter.secondary_opts]
        } | {"--help"}
    code = [path for folder in ("flows", "tasks", "tokenizer") for path in (checkout / folder).rglob("*.py")]
    for path in [*code, *(checkout / "docs").glob("*.md"), checkout / "README.md"]:
        for first, second, rest in re.findall(
            r"tokmill ([a-z-]+)( [a-z]+)?( [^`\n|#]*)?", path.read_text("utf-8")
        ):
            known = options.get(first + second, options.get(first))
            named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest)) if known else set()
            assert named <= (known or set()), f"{path}: tokmill {first}{second}{rest}"


def test_the_version_is_the_distribution_s(tokmill):
    code, out, _ = tokmill("--version")
    assert (code, out.split()[0]) == (0, "tokmill")


def test_the_guide_lists_every_key_of_a_profile(checkout, monkeypatch):
    monkeypatch.syspath_prepend(str(checkout / "docs"))
    page = (checkout / "docs" / "profiles.md").read_text(encoding="utf-8")
    assert import_module("keys").made(page) == page, "run: python docs/keys.py"


class TestWrongUsage:
    def test_no_command_shows_help(self, tokmill):
        code, out, _ = tokmill()
        assert code == 2
        assert "Usage: tokmill" in out

    def test_an_unknown_command_names_the_nearest(self, tokmill):
        code, _, err = tokmill("rnu")
        assert code == 2
        assert "'run'" in err

    def test_an_unknown_profile(self, tokmill):
        code, out, err = tokmill("plan", "smok")
        assert (code, out) == (2, "")
        assert err.startswith("tokmill: profile 'smok'")
        assert "did you mean smoke?" in err

    def test_a_bad_profile(self, tokmill, tmp_path):
        (tmp_path / "own.toml").write_text("[sources.a]\nfiles = ['x']\n[pack]\nsequence_length = 0")
        code, _, err = tokmill("run", "own.toml")
        assert code == 2
        assert "pack.sequence_length=0 must be at least 8" in err

    def test_a_bad_override(self, tokmill):
        code, _, err = tokmill("plan", "smoke", "--set", "pack.sequence_lenght=8")
        assert code == 2
        assert "did you mean pack.sequence_length?" in err

    @pytest.mark.parametrize(
        "command", [["ls"], ["show", "card/smoke"], ["store", "verify"], ["store", "rebuild"]]
    )
    def test_no_store(self, tokmill, command, tmp_path):
        code, _, err = tokmill(*command)
        assert code == 2
        assert "there is no store at tokmill-store" in err
        assert not (tmp_path / "tokmill-store").exists()

    def test_a_store_that_is_no_folder(self, tokmill):
        code, _, err = tokmill("ls", "--store", "s3://me:secret@bucket/store")
        assert code == 2
        assert "s3://…@bucket/store" in err
        assert "AWS_ACCESS_KEY_ID" in err
        assert "secret@" not in err

    def test_a_store_that_cannot_be_made_is_told_before_anything_starts(self, tokmill, tmp_path):
        (tmp_path / "file").write_text("")
        code, _, err = tokmill("run", "smoke", "--store", "file/store")
        assert code == 2
        assert err == (
            "tokmill: store file/store cannot be created (Not a directory); "
            "name another with --store or TOKMILL_STORE\n"
        )

    def test_a_long_message_is_broken_between_words_on_a_terminal_only(self, tokmill, monkeypatch):
        whole = tokmill("plan", "smok", "--set", "a")[2]
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "40")
        first, *others = tokmill("plan", "smok", "--set", "a")[2].splitlines()
        assert all(len(line) <= 40 and line.startswith("    ") for line in others)
        assert " ".join([first, *(line.strip() for line in others)]) == whole.strip()


class TestFailures:
    def test_a_source_without_files_fails(self, tokmill, tmp_path):
        (tmp_path / "own.toml").write_text("[sources.a]\nfiles = ['nothing/*.txt']")
        code, _, err = tokmill("plan", "own.toml")
        assert code == 1
        assert "matches no file" in err

    def test_there_is_no_traceback(self, tokmill):
        _, _, err = tokmill("plan", "smok")
        assert "Traceback" not in err
        assert len(err.splitlines()) == 1

    def test_debugging_shows_the_traceback(self, tokmill, monkeypatch):
        monkeypatch.setenv("TOKMILL_DEBUG", "1")
        code, _, err = tokmill("plan", "smok")
        assert code == 2
        assert "Traceback" in err

    def test_a_reader_that_goes_away_is_no_error(self, tmp_path):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "tokmill", "profiles", "--keys"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=tmp_path
        ) as child:
            child.stdout.close()
            error = child.stderr.read()
        assert error == b""

    @pytest.mark.parametrize("command", [["run", "smoke"], ["up"]])
    def test_a_home_that_prefect_cannot_use_is_told_before_anything_starts(
        self, tokmill, monkeypatch, command, tmp_path
    ):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("PREFECT_HOME", "file/home")
        code, _, err = tokmill(*command)
        assert code == 1
        assert "file/home ([Errno 20] Not a dir" in err
        assert "; set PREFECT_HOME to " in err


class TestProfiles:
    def test_what_ships_is_listed(self, tokmill):
        code, out, _ = tokmill("profiles")
        assert code == 0
        assert "quickstart" in out
        assert "smoke" in out

    def test_json_is_the_resolved_profile(self, tokmill):
        _, out, _ = tokmill("profiles", "--json")
        listed = {one["name"]: one for one in json.loads(out)}
        assert listed["smoke"]["pack"] == load_profile("smoke").resolved()["pack"]

    @pytest.mark.parametrize("arguments", [["--keys", "pack"], ["pack"]])
    def test_keys_of_one_section(self, tokmill, arguments):
        code, out, _ = tokmill("profiles", *arguments)
        assert code == 0
        assert "sequence_length" in out
        assert "vocab_size" not in out

    def test_keys_of_an_unknown_section(self, tokmill):
        code, _, err = tokmill("profiles", "--keys", "pakc")
        assert code == 2
        assert "did you mean pack?" in err

    def test_init_writes_a_profile_and_says_what_is_next(self, tokmill, tmp_path):
        (tmp_path / "a.txt").write_text("x")
        code, out, _ = tokmill("init", "own.toml", "--source", "a=a.txt", "--vocab-size", "300")
        assert code == 0
        assert "tokmill run own.toml" in out
        assert load_profile("own.toml").training().vocab_size == 300
        assert tokmill("init", "own.toml", "--source", "a=a.txt")[0] == 2
        assert tokmill("init", "own.toml", "--source", "a=a.txt", "--force")[0] == 0


def imported_by(*arguments):
    """Return which heavy packages a command imports."""
    program = (
        "import sys; from tokmill.flows.commands.main import main; main(sys.argv[1:]); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1]


def test_help_imports_nothing_heavy():
    assert imported_by("--help") == "[]"


def test_planning_imports_neither_prefect_nor_numba(tmp_path):
    imported = imported_by("plan", "smoke", "--store", str(tmp_path / "store"))
    assert "prefect" not in imported
    assert "numba" not in imported


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("tokmill ")
