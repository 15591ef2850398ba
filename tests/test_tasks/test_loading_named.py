"""Packed artifacts are opened by their names, too."""

import pytest

from tests.test_tasks.traced_line import traced_line
from tokmill import tokenizer
from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.loading import PackedDataset


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    return traced_line(tmp_path_factory.mktemp("traced"))


def test_a_name_is_looked_up_in_the_store_of_the_environment(line, monkeypatch):
    monkeypatch.setenv("TOKMILL_STORE", str(line.store.root))
    with PackedDataset("packed/line") as dataset:
        assert dataset.path == line.store.path(line.packed)


def test_a_name_without_a_store_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        LoadingError, match="packed/line is not a folder, and there is no store at tokmill-store"
    ):
        PackedDataset("packed/line")


def test_a_tokenizer_is_loaded_by_its_name(line, monkeypatch):
    by_folder = tokenizer.load(line.store.path(line.store.resolve("tokenizer/line")))
    assert tokenizer.load("tokenizer/line@v1", store=line.store.root) == by_folder
    monkeypatch.setenv("TOKMILL_STORE", str(line.store.root))
    assert tokenizer.load("tokenizer/line") == by_folder


def test_a_path_is_a_path_even_if_it_looks_like_a_name(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = tokenizer.train(["the cat"], vocab_size=258)
    made.save("tokenizer/line")
    assert tokenizer.load("tokenizer/line") == made
