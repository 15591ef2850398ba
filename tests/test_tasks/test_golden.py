"""A stage's output changes with its version only: golden digests over fixed texts; `golden` has the rules."""

import pytest

from tests.test_tasks.golden import all_stages, current_digests, golden_digests
from tokmill.tasks.store import Store

REFRESH = "then `python -m tests.test_tasks.golden`"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="module")
def current(folder):
    return current_digests(folder)


def test_every_stage_has_golden_digests():
    assert sorted(golden_digests()) == sorted(all_stages())


@pytest.mark.parametrize("verb", sorted(all_stages()))
def test_output_changes_only_with_a_version(current, verb):
    golden, found = golden_digests()[verb], current[verb]
    kept, now = golden["artifacts"], found["artifacts"]
    changed = sorted(
        {
            name
            for before, after in zip(kept, now, strict=False)
            for name in before | after
            if before.get(name) != after.get(name)
        }
    )
    if len(kept) != len(now):
        changed.append(f"{len(now)} artifacts instead of {len(kept)}")
    if found["version"] != golden["version"]:
        pytest.fail(f"{verb}: VERSION {found['version']} has no golden digests yet; review, {REFRESH}")
    if changed:
        pytest.fail(
            f"{verb} gives another {', '.join(changed)} than before under the same VERSION; if that is "
            f"meant, raise VERSION (`version` in the stage's module), {REFRESH}"
        )


@pytest.mark.usefixtures("current")
def test_every_end_of_an_account_is_documented(folder, checkout):
    page = (checkout / "docs" / "formats.md").read_text(encoding="utf-8")
    listed = page.partition("## What can become of a document")[2]
    query = "SELECT DISTINCT split_part(name, ':', 1) AS first, name FROM accounts WHERE side = 'became'"
    rows = Store.open(folder / "store").catalog.query(query)
    ends = {"quarantined:REASON" if row["first"] == "quarantined" else row["name"] for row in rows}
    assert len(ends) > 10
    assert sorted(end for end in ends if f"`{end}`" not in listed) == []
