"""What stands beside the code stays true: links, first commands, the floor plan, the oldest packages."""

import re
import tomllib
from pathlib import Path

LINK = re.compile(r"\]\(([^)#]+)\)")
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def test_the_readme_s_links_lead_to_files_that_exist(checkout: Path) -> None:
    links = LINK.findall((checkout / "README.md").read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (checkout / link).exists()] == []


def test_the_readme_s_first_commands_are_quickstart_and_tests_and_ci_runs_the_same(checkout: Path) -> None:
    quickstart, tests = SHELL.findall((checkout / "README.md").read_text(encoding="utf-8"))[:2]
    script = (checkout / ".ci" / "run").read_text(encoding="utf-8")
    assert quickstart.rstrip().endswith("pip install --quiet . && .venv/bin/tokmill run quickstart")
    assert tests.rstrip().endswith("pip install --quiet -e '.[test]' && .venv/bin/python -m pytest")
    assert "\nequip venv python3 -e '.[test]'\n" in script
    assert '\nPATH="$folder/venv/bin:$PATH" in_time "the test command" python -m pytest ||' in script


def test_every_file_that_the_floor_plan_names_exists(checkout: Path) -> None:
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:flows|tasks|tokenizer|tests)/[\w/]+(?:\.py|/))`", page))
    table = page.partition("Paths are below `tasks/`")[2].partition("## The way of a parameter")[0]
    named |= {f"tasks/{name}" for name in re.findall(r"`([a-z_]+/[\w/]+(?:\.py|/))`", table)}
    assert len(named) > 30
    assert sorted(name for name in named if not (checkout / name).exists()) == []


def test_the_oldest_packages_are_the_lower_bounds(checkout: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"]), re.MULTILINE))
    lines = (checkout / "tests" / "oldest-packages.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert pinned[name].removesuffix(".*").startswith(bound), name
