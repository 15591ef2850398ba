"""What other platforms' logarithms and exponentials would give: results a unit away in the last place.

The kernels of Unigram's training run as plain Python, with `math` and numpy as they might be elsewhere.
"""

import json
import os
import subprocess
import sys

import pytest

_CHILD = """
import json, math, random, sys, types
import numpy as np
from pathlib import Path
import tokmill
from tokmill import tokenizer
from tokmill.tokenizer.unigram import trainer
from tokmill.tokenizer.unigram.kernels import expectation, pruning


def elsewhere(choose):
    def moved(function):
        def call(value):
            found = function(value)
            return found if not np.isfinite(found).all() else np.nextafter(found, choose(found))
        return call

    names = ("log", "exp", "log1p")
    there = types.SimpleNamespace(**{**vars(math), **{name: moved(getattr(math, name)) for name in names}})
    expectation.math = pruning.math = there
    trainer.np = types.SimpleNamespace(**{**vars(np), **{name: moved(getattr(np, name)) for name in names}})


def any_way(found):
    return np.array([draw.choice((-np.inf, np.inf)) for _ in range(np.size(found))]).reshape(np.shape(found))


texts = (Path(tokmill.__file__).parent / "profiles" / "samples" / "de.txt").read_text()[:6000].splitlines()


def trained():
    return tokenizer.train(texts, family="unigram", vocab_size=200).definition.to_spec()


draw = random.Random(7)
found = [trained()]
for choose in (lambda value: -np.inf, lambda value: np.inf, any_way, any_way, any_way):
    elsewhere(choose)
    found.append(trained())
print(json.dumps([len(found), all(each == found[0] for each in found)]))
"""


@pytest.mark.slow
def test_unigram_decides_alike_where_logarithms_differ_in_the_last_place() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    said = subprocess.check_output([sys.executable, "-c", _CHILD], env=environment)
    assert json.loads(said) == [6, True]
