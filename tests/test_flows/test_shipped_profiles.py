"""The profiles that ship, each on a few small texts: from counting to the card, in the family's words."""

import json
import shutil
from pathlib import Path

import pytest

from tests.test_tasks.whole_line import Line, LineParams
from tokmill.flows.profile import load_profile
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.packing.stage import PackParams
from tokmill.tasks.store import Store
from tokmill.tasks.train.stage import TrainParams

SOURCES = {
    "code": SourceSpec(files=["code/*.py"]),
    "latin": SourceSpec(files=["latin/*.txt"], format="delimited", delimiter="\n\n"),
}


TITLES = {
    "char_bpe": ("BPE over characters", ()),
    "code": ("Byte-level BPE", ("huggingface", "gpt2", "tiktoken")),
    "sentencepiece": ("Unigram", ("sentencepiece",)),
    "unigram": ("Unigram", ("huggingface",)),
    "word_bpe": ("BPE over words", ("huggingface", "gpt2")),
    "wordpiece": ("WordPiece", ("huggingface", "bert")),
}
"""Of profiles that train otherwise than the quickstart: the title of the card, and exports."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.slow] * (each not in ("sentencepiece", "wordpiece")))
        for each in TITLES
    ],
)
def test_its_artifacts_are_sound_and_speak_of_its_family(name: str, tmp_path: Path, checkout: Path) -> None:
    profile = load_profile(name)
    shutil.copytree(checkout / "tests" / "golden" / "texts", tmp_path / "texts")
    params = LineParams(
        train=TrainParams(**profile.training().model_dump() | {"vocab_size": 640}),
        encode=profile.encode.model_copy(update={"fim_rate": 0.0}),
        mix=MixParams(weights={"code": 1.0, "latin": 1.0}),
        pack=PackParams(sequence_length=64),
    )
    line = Line(Store.open(str(tmp_path / "store")), tmp_path / "texts", SOURCES)
    refs = line.run(params)
    assert line.store.verify(full=True) == []
    paths = {
        kind: line.store.path(ref) for kind, ref in refs.items() if kind in {"tokenizer", "audit", "card"}
    }
    tok, card = open_tokenizer(paths["tokenizer"]), (paths["card"] / "card.md").read_text("utf-8")
    title, formats = TITLES[name]
    assert f"- {title}, trained on these sources" in card
    figures = {name.removeprefix("num_") for name in tok.definition.model.figures()}
    assert {word for word in ("merges", "pieces", "continuing") if f" {word}" in card} == figures
    loses, audit = (
        tok.definition.model.unknown_token is not None,
        (paths["audit"] / "summary.md").read_text("utf-8"),
    )
    assert ("and is lost" in card) == ("Unknown tokens" in audit) == loses
    exports = json.loads((paths["tokenizer"] / "exports.json").read_bytes())
    assert {*formats} <= {format_name for format_name, result in exports.items() if "files" in result}
    end, role = profile.encode.end_of_document, {"wordpiece": "sep"}.get(name, "eos")
    assert end in tok.special_tokens
    assert tok.roles[role] == ("</s>" if name == "sentencepiece" else end)
    if name == "code":  # it keeps indentation, and digits are single
        text = "def f(x):\n    return x + 1234\n"
        tokens = [tok.token_bytes(token) for token in tok.encode(text)]
        assert b"".join(tokens) == text.encode()
        assert {b"1", b"2", b"3", b"4", b"   "} <= set(tokens)  # the last blank goes with the word
        assert {"fim_prefix", "fim_middle", "fim_suffix", "turn_start", "turn_end"} <= tok.roles.keys()
        assert tok.definition.num_reserved == 32
