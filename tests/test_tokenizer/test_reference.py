"""The worked examples in the docstrings of the reference models."""

import doctest
import importlib
import pkgutil

import pytest

from tokmill.tokenizer import reference
from tokmill.tokenizer.pipeline.families import FAMILIES

MODELS = [module.name for module in pkgutil.iter_modules(reference.__path__)]


def test_each_family_has_one() -> None:
    assert set(FAMILIES) <= set(MODELS)  # beside them is how text is split


@pytest.mark.parametrize("model", MODELS)
def test_its_example_gives_what_it_says(model: str) -> None:
    done = doctest.testmod(importlib.import_module(f"{reference.__name__}.{model}"))

    assert done.attempted
    assert not done.failed
