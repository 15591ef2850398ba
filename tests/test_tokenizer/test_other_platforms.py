"""What other platforms' logarithms and exponentials would give: results some units away in the last place.

The kernels of Unigram's training and sampling run as plain Python, with `math` and numpy as they might be
elsewhere: up to 4 units away, which is what the vector units of processors are allowed.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.effort import EVERYTHING

_DRAWS = 20 if EVERYTHING else 2
_CHILD = """
import json, math, sys, types
import numpy as np
from pathlib import Path
import tokmill
from tokmill import tokenizer
from tokmill.tokenizer.unigram import family
from tokmill.tokenizer.unigram.kernels import encoding, expectation, selection
from tokmill.tokenizer.unigram.model import sample_batch


def elsewhere(steps):
    def moved(function):
        def call(value):
            found = function(value)
            away = found + steps(np.shape(found)) * np.spacing(np.abs(found))
            return np.where(np.isfinite(found), away, found)[()]
        return call

    names = ("log", "exp", "log1p")
    there = types.SimpleNamespace(**{**vars(math), **{name: moved(getattr(math, name)) for name in names}})
    encoding.math = expectation.math = selection.math = there
    family.np = types.SimpleNamespace(**{**vars(np), **{name: moved(getattr(np, name)) for name in names}})


texts = (Path(tokmill.__file__).parent / "profiles" / "samples" / "de.txt").read_text()[:6000].splitlines()


def trained():
    tok = tokenizer.train(texts, family="unigram", vocab_size=200)
    drawn = sample_batch(tok.definition, [text.encode() for text in texts[:20]], alpha=0.3, seed=1)
    return tok.definition.to_spec(), drawn.ids.tolist()


draw = np.random.default_rng(7)
ways = [lambda shape: -4.0, lambda shape: 4.0]
ways += [lambda shape: draw.integers(-4, 5, shape)] * int(sys.argv[1])
with np.errstate(all="ignore"):
    found = [trained()]
    for steps in ways:
        elsewhere(steps)
        found.append(trained())
print(json.dumps([len(found), all(each == found[0] for each in found)]))
"""


@pytest.mark.slow
def test_unigram_decides_alike_where_logarithms_differ_in_the_last_places() -> None:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    said = subprocess.check_output([sys.executable, "-c", _CHILD, str(_DRAWS)], env=environment)
    assert json.loads(said) == [3 + _DRAWS, True]
