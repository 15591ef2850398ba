"""docs/mixing.md: its profiles load, its commands print the shown output, its table follows the rules.

Runs are made in this process, without Prefect; what depends on the machine or on the day is not compared.
"""

import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.test_flows.in_process import InProcess
from tokmill.flows.commands.main import main
from tokmill.flows.profile import load_profile
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.quotas import asked

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")
SECTIONS = ("figures", "parameters", "accounts")
SIZES = {"latin": 8804, "cyrillic": 3443, "cjk": 5150}
ANY_SOURCES = "".join(f'[sources.{name}]\nfiles = ["x"]\n' for name in ("web", "code", "papers"))


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "mixing.md").read_text(encoding="utf-8")


def blocks(page: str, *kinds: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page) if kind in kinds]


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Every command of the page, and what it printed."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed.strip()


@pytest.fixture
def folder(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the page's files."""
    for text in blocks(page, "toml"):
        if named := FILE.match(text):
            (tmp_path / named[1]).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def run(executor: InProcess, profile: str, *overrides: str) -> str:
    """Run a profile; return the mixture's size, or the error."""
    try:
        made = executor.run(profile, *overrides)
    except TaskError as error:
        return f"tokmill: {error}"
    return f"{executor.store.record(made['mixture']).metrics['num_tokens']:,} tokens"


def overrides_of(words: list[str]) -> list[str]:
    """Return the values of `--set`, up to a redirection."""
    return [value for name, value in pairwise(words) if name == "--set"]


def sections(text: str) -> dict[str, str]:
    """The parts of `tokmill show` that are the same on every machine."""
    parts = [part.strip("\n") for part in text.split("\n\n")]
    found = {part.partition("\n")[0]: re.sub(r" +$", "", part, flags=re.M) for part in parts}
    return {name: part for name, part in found.items() if name in SECTIONS}


@pytest.mark.slow
def test_the_commands_print_what_the_page_says(page, folder, capsys):
    executor, done = InProcess.at(folder / "tokmill-store"), []
    for command, printed in commands(page):
        words = shlex.split(command)
        capsys.readouterr()
        if words[:2] == ["tokmill", "run"]:
            said = run(executor, words[2], *overrides_of(words))
            assert said.startswith("tokmill:") == printed.startswith("tokmill:"), said
            assert " ".join(said.split()) in " ".join(printed.split()) or not printed
        elif words[:2] == ["tokmill", "show"]:
            assert main(["show", words[2]]) == 0
            assert sections(printed)
            assert sections(printed).items() <= sections(capsys.readouterr().out).items()
        elif words[:2] == ["tokmill", "plan"]:
            code = main(words[1:])
            assert (code, capsys.readouterr().err) == (2, printed.removesuffix("(exit code 2)"))
        else:
            pytest.fail(f"a command that nobody tries: {command}")
        done.append(words[1])
    assert set(done) == {"run", "show", "plan"}


def test_the_other_profiles_are_feasible(page, tmp_path):
    others = [text for text in blocks(page, "toml") if not FILE.match(text)]
    assert len(others) >= 3
    for text in others:
        path = tmp_path / "own.toml"
        path.write_text(f"{ANY_SOURCES}{text}", encoding="utf-8")
        asked(load_profile(path).mix_params(), dict.fromkeys(["code", "papers", "web"], 10**12))


def test_the_table_of_rules_is_what_they_give(page):
    rows = re.findall(r"^\| (`(?:method|weights|proportions) =.*?) \| .*? \| (.*% \| [\d,]+) \|$", page, re.M)
    assert len(rows) == 5
    for rule, shown in rows:
        given = tomllib.loads("\n".join(re.findall(r"`(.*?)`", rule)))
        quotas = asked(MixParams(**given), SIZES).quotas
        shares = [f"{float(quota.share):.1%}".replace("%", " %") for quota in quotas.values()]
        assert " | ".join([*shares, f"{sum(q.num_tokens for q in quotas.values()):,}"]) == shown
