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


def test_every_module_that_a_page_names_exists(checkout: Path) -> None:
    """Pages name files below the checkout or one of three folders, or modules with dots."""
    pages = [checkout / "CONTRIBUTING.md", *checkout.glob("docs/*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(re.findall(r"`([a-z_]+/[\w/]+\.py|(?:flows|tasks|tokenizer|tests)/[\w/]+/)`", text))
    named |= {name.replace(".", "/") for name in re.findall(r"`((?:flows|tasks)(?:\.[a-z_]{3,})+)`", text)}
    assert len(named) > 100
    places = [checkout, *(checkout / folder for folder in ("tasks", "tasks/audit", "tokenizer"))]
    there = [
        name for name in named for place in places for end in ("", ".py") if (place / f"{name}{end}").exists()
    ]
    assert sorted(named.difference(there)) == []


def test_the_oldest_packages_are_the_lower_bounds(checkout: Path) -> None:
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"]), re.MULTILINE))
    lines = (checkout / "tests" / "oldest-packages.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert pinned[name].removesuffix(".*").startswith(bound), name
