"""A profile written as TOML is the same profile."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.flows.profile import load_profile
from tokmill.flows.profile.drafting import to_toml
from tokmill.flows.profile.files import shipped_names

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = TEXTS | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_what_is_written_is_read_again(table: dict[str, Any]) -> None:
    written = to_toml(table)
    assert tomllib.loads(written) == table
    assert written.replace("\n", "").isprintable()


def test_what_has_no_value_is_left_out() -> None:
    assert to_toml({"a": None, "b": {"c": None, "d": 1.0}}) == "[b]\nd = 1.0\n"


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_profile_is_the_same_when_written(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    (tmp_path / "again.toml").write_text(to_toml(profile.resolved()), encoding="utf-8")

    assert load_profile(tmp_path / "again.toml").resolved() == profile.resolved()
