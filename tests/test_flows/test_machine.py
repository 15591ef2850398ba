"""The machine settings: option, environment and profile, in this order of precedence."""

import pytest

from tokmill.flows.errors import UsageError
from tokmill.flows.profile import Execution
from tokmill.flows.run.machine import Machine, num_bytes
from tokmill.tasks.core.context import quarter_of_the_ram


@pytest.mark.parametrize(
    ("size", "expected"),
    [("4GB", 4 * 10**9), ("512MiB", 512 << 20), ("1.5 KB", 1500), ("2TiB", 2 << 40)],
)
def test_sizes_are_numbers_with_a_unit(size: str, expected: int) -> None:
    assert num_bytes(size) == expected


@pytest.mark.parametrize("size", ["4", "4 gigs", "-1GB", "GB", "4GB "])
def test_what_is_no_size_is_named(size: str) -> None:
    with pytest.raises(UsageError, match=f"memory='{size}' must be a number and a unit.*e.g. 4GB"):
        num_bytes(size)


def test_the_nearest_word_on_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKMILL_MEMORY", raising=False)
    assert Machine.of(Execution()).memory_bytes == quarter_of_the_ram()
    profile = Execution(memory="3KB")
    assert Machine.of(profile).memory_bytes == 3000
    monkeypatch.setenv("TOKMILL_MEMORY", "2KB")
    assert Machine.of(profile).memory_bytes == 2000
    assert Machine.of(profile, memory="1KB").memory_bytes == 1000
