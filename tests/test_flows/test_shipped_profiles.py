"""The profiles that ship, each on a few small texts: from counting to the card, in the family's words."""

import json
import shutil
from dataclasses import dataclass
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
from tokmill.tokenizer import Tokenizer

TITLES = {
    "char_bpe": "BPE over characters",
    "code": "Byte-level BPE",
    "sentencepiece": "Unigram",
    "unigram": "Unigram",
    "word_bpe": "BPE over words",
    "wordpiece": "WordPiece",
}
"""Of profiles that differ from the quickstart in how a tokenizer is trained."""
FORMATS = {
    "char_bpe": set[str](),
    "code": {"huggingface", "gpt2", "tiktoken"},
    "sentencepiece": {"sentencepiece"},
    "unigram": {"huggingface"},
    "word_bpe": {"huggingface", "gpt2"},
    "wordpiece": {"huggingface", "bert"},
}
SOURCES = {
    "code": SourceSpec(files=["code/*.py"]),
    "latin": SourceSpec(files=["latin/*.txt"], format="delimited", delimiter="\n\n"),
}


@dataclass(frozen=True)
class Made:
    """A store, and the artifacts of one profile in it."""

    store: Store
    tokenizer: Tokenizer
    audit: str
    card: str
    exports: dict[str, dict[str, object]]


QUICK = ("sentencepiece", "wordpiece")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in TITLES],
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Made:
    folder, profile = tmp_path_factory.mktemp(request.param), load_profile(request.param)
    shutil.copytree(checkout / "tests" / "golden" / "texts", folder / "texts")
    train = profile.training()
    assert train is not None
    params = LineParams(
        train=TrainParams(**train.model_dump() | {"vocab_size": 640}),
        encode=profile.encode.model_copy(update={"fim_rate": 0.0}),
        mix=MixParams(weights={"code": 1.0, "latin": 1.0}),
        pack=PackParams(sequence_length=64),
    )
    line = Line(Store.open(str(folder / "store")), folder / "texts", SOURCES)
    refs = line.run(params)
    paths = {
        kind: line.store.path(ref) for kind, ref in refs.items() if kind in {"tokenizer", "audit", "card"}
    }
    return Made(
        line.store,
        open_tokenizer(paths["tokenizer"]),
        (paths["audit"] / "summary.md").read_text("utf-8"),
        (paths["card"] / "card.md").read_text("utf-8"),
        json.loads((paths["tokenizer"] / "exports.json").read_bytes()),
    )


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.node.callspec.params["made"]
    return found


def test_its_artifacts_are_sound_and_speak_of_its_family(made: Made, name: str) -> None:
    assert made.store.verify(full=True) == []
    assert f"- {TITLES[name]}, trained on these sources" in made.card
    figures = {name.removeprefix("num_") for name in made.tokenizer.definition.model.figures()}
    assert {word for word in ("merges", "pieces", "continuing") if f" {word}" in made.card} == figures
    loses = made.tokenizer.definition.model.unknown_token is not None
    assert ("and is lost" in made.card) == ("Unknown tokens" in made.audit) == loses
    written = {format_name for format_name, result in made.exports.items() if "files" in result}
    assert FORMATS[name] <= written
    end = load_profile(name).encode.end_of_document
    role = {"wordpiece": "sep"}.get(name, "eos")
    assert end in made.tokenizer.special_tokens
    assert made.tokenizer.roles[role] == ("</s>" if name == "sentencepiece" else end)


@pytest.mark.slow
@pytest.mark.parametrize("made", ["code"], indirect=True)
def test_the_profile_for_code_keeps_indentation_and_single_digits(made: Made) -> None:
    tok, text = made.tokenizer, "def f(x):\n    return x + 1234\n"
    tokens = [tok.token_bytes(token) for token in tok.encode(text)]
    assert b"".join(tokens) == text.encode()
    assert {b"1", b"2", b"3", b"4"} <= set(tokens)
    assert b"   " in tokens  # the last blank goes with the word
    assert {"fim_prefix", "fim_middle", "fim_suffix", "turn_start", "turn_end"} <= tok.roles.keys()
    assert tok.definition.num_reserved == 32
