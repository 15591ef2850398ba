"""Kernels as plain Python give what machine code gives, and other platforms' logarithms what ours give."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.effort import EVERYTHING
from tests.test_tokenizer.conftest import BERT
from tokmill import tokenizer
from tokmill.tokenizer.components.normalizers import normalize_buffers
from tokmill.tokenizer.core.buffers import pack
from tokmill.tokenizer.sampling import sample_batch
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.unigram.model import n_best

TEXTS = ["the cat, unhappily-loooooooooooooooong sat on the mats that 1234567 dogs had"] * 2
ASKED = [
    "the dogs unhappy caté",
    "[UNK] x\n é\u0301 今天",
    "",
    "Größe 漢字 İ \u302f\U0001d165 Ａe\u0301\u00ad\u200b ٣٤٥٦",
]
DAMAGED = "It's 12345 of\n\n   日本語 x\u0301 😀!! \n  \r\n end  ".encode() + b"\xe4\xb8 \xff a\xf0"
FAMILIES: dict[str, dict[str, Any]] = {
    "byte_bpe": {"vocab_size": 275, "tie_break": "first_seen"},
    "longest_match": {"vocab_size": 270},
    "char_bpe": {"vocab_size": 45},
    "char_bpe of sentences": {"family": "char_bpe", "mode": "sentencepiece", "vocab_size": 45},
    "unigram": {"vocab_size": 45},
    "unigram of sentences": {"family": "unigram", "mode": "sentencepiece", "vocab_size": 45},
    "word_level": {"vocab_size": 12},
    "character_level": {"vocab_size": 12},
    "wordpiece": {"vocab_size": 60, "unknown": "part"},
    "raw wordpiece": {"family": "wordpiece", "vocab_size": 60, "split_pattern": "bert", "normalizer": BERT},
    **{
        f"word_bpe, {segmentation}, {end}": {
            "family": "word_bpe",
            "vocab_size": 45,
            "segmentation": segmentation,
            "end_of_word": end,
        }
        for segmentation in ("merges", "longest_first")
        for end in ("attached", "apart")
    },
}


def of_family(name: str) -> Any:
    """What a family learns from a few words, and all that it makes of some texts."""
    tok = tokenizer.train(TEXTS, **{"family": name, "allow_smaller": True, **FAMILIES[name]})
    made = [tok.encode_batch(ASKED, as_text=True).to_lists(), tok.encode_with_offsets(ASKED[0])]
    if tok.family == "unigram":
        drawn = sample_batch(tok.definition, ASKED, alpha=0.3, seed=2**64 - 1)
        made += [drawn.to_lists(), [ids for ids, _ in n_best(tok.definition, ASKED[0], 3)]]
    elif tok.family in {"byte_bpe", "char_bpe", "word_bpe"} and "longest_first" not in name:
        made.append(sample_batch(tok.definition, ASKED, dropout=0.4, seed=5).to_lists())
    return [tok.spec(), made]


def split(name: str, digits: Any) -> Any:
    found = compile_pattern(name, digits).split(
        np.frombuffer(DAMAGED, np.uint8), np.array([0, 20, 20, len(DAMAGED)])
    )
    return [found.starts.tolist(), found.ends.tolist(), found.offsets.tolist()]


def results() -> dict[str, Any]:
    made = {name: of_family(name) for name in FAMILIES}
    for name in ("gpt2", "cl100k", "o200k", "deepseek_v3"):
        made |= {
            f"{name}, {digits}": split(name, digits) for digits in ("pattern", "groups_of_three_from_right")
        }
    for steps in (BERT, "nfc", "nfkd+lowercase", "nfkc"):
        data, offsets = normalize_buffers(steps, *pack(ASKED))
        made[steps] = [data.tobytes().hex(), offsets.tolist()]
    return made


@pytest.mark.slow
def test_plain_python_gives_what_machine_code_gives(checkout):
    code = f"import json; from {__name__} import results; print(json.dumps(results()))"
    said = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, cwd=checkout
    )
    plain, compiled = json.loads(said), json.loads(json.dumps(results()))
    assert [name for name in compiled if plain[name] != compiled[name]] == []


_DRAWS = 20 if EVERYTHING else 2
_CHILD = """
import json, math, sys, types
import numpy as np
from pathlib import Path
import tokmill
from tokmill import tokenizer
from tokmill.tokenizer.unigram import family
from tokmill.tokenizer.unigram import expectation, segmentation
from tokmill.tokenizer.sampling import sample_batch


def elsewhere(steps):
    def moved(function):
        def call(value):
            found = function(value)
            away = found + steps(np.shape(found)) * np.spacing(np.abs(found))
            return np.where(np.isfinite(found), away, found)[()]
        return call

    names = ("log", "exp", "log1p")
    there = types.SimpleNamespace(**{**vars(math), **{name: moved(getattr(math, name)) for name in names}})
    segmentation.math = expectation.math = there
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
def test_unigram_decides_alike_where_logarithms_differ_in_the_last_places():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    said = subprocess.check_output([sys.executable, "-c", _CHILD, str(_DRAWS)], env=environment)
    assert json.loads(said) == [3 + _DRAWS, True]
