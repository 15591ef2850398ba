"""The constraints for the oldest packages are the lower bounds of pyproject.toml."""

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def test_the_oldest_packages_are_the_lower_bounds() -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(project["dependencies"]), re.MULTILINE))
    lines = (HERE / "oldest-packages.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned.keys() == bounds.keys()
    for name, bound in bounds.items():
        assert pinned[name].removesuffix(".*").startswith(bound), name
