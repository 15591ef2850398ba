"""Packed artifacts are opened by their names, too."""

import pytest

from tasks.errors import LoadingError, StoreError
from tasks.loading import PackedDataset
from tests.test_tasks.traced_line import traced_line


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    return traced_line(tmp_path_factory.mktemp("traced"))


def test_a_name_is_looked_up_in_the_store_that_is_given(line):
    with PackedDataset("packed/line@v1", store=line.store.root) as dataset:
        assert dataset.path == line.store.path(line.packed)


def test_a_name_is_looked_up_in_the_store_of_the_environment(line, monkeypatch):
    monkeypatch.setenv("TOKMILL_STORE", str(line.store.root))
    with PackedDataset("packed/line") as dataset:
        assert dataset.path == line.store.path(line.packed)


def test_a_name_without_a_store_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        LoadingError, match="packed/line is no folder, and there is no store at tokmill-store"
    ):
        PackedDataset("packed/line")


def test_a_name_that_the_store_does_not_have_is_answered_with_the_nearest(line):
    with pytest.raises(StoreError, match="packed/line"):
        PackedDataset("packed/lime", store=line.store.root)
