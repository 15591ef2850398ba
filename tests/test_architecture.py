"""docs/architecture.md: the files and folders that it names are there."""

import re
from pathlib import Path

NAMED = re.compile(r"`((?:flows|tasks|tokenizer|tests)/[\w/]+(?:\.py|/))`")
BELOW_TASKS = re.compile(r"`([a-z_]+/[\w/]+(?:\.py|/))`")


def test_every_file_that_the_page_names_exists(checkout: Path) -> None:
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(NAMED.findall(page))
    table = page.partition("Paths are below `tasks/`")[2].partition("## The way of a parameter")[0]
    named |= {f"tasks/{name}" for name in BELOW_TASKS.findall(table)}

    assert len(named) > 30
    assert sorted(name for name in named if not (checkout / name).exists()) == []
