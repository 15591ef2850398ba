"""Vocabularies of llama.cpp and RWKV become artifacts: adopted, attested, exported."""

import json
from pathlib import Path

import pytest

from tests.test_tokenizer.conftest import like_rwkv
from tests.test_tokenizer.gguf_files import write_gguf
from tests.test_tokenizer.test_gguf import MODELS, small_file
from tokmill import tokenizer
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.train.adopt import AdoptParams, run

EXPORTS = {
    "gpt2": {"huggingface", "gpt2", "tiktoken"},
    "llama": set[str](),
    "t5": set[str](),
    "bert": {"huggingface", "bert"},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_gguf_model_is_adopted(name: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", small_file(name))
    (tmp_path / "vocab.txt").write_text("of another model\n")
    (tmp_path / "out").mkdir()

    outcome = run(AdoptParams(format="gguf"), out=tmp_path / "out", file=tmp_path)

    assert outcome.metrics["vocab_size"] == tokenizer.load(path).vocab_size
    assert open_tokenizer(tmp_path / "out").spec() == tokenizer.load(path).spec()
    exports = json.loads((tmp_path / "out" / "exports.json").read_bytes())
    assert {kind for kind, result in exports.items() if "files" in result} >= EXPORTS[name]
    assert "gguf" not in exports


def test_rwkvs_vocabulary_is_adopted(tmp_path: Path) -> None:
    like_rwkv().save(tmp_path / "in", "rwkv")
    (tmp_path / "out").mkdir()

    outcome = run(AdoptParams(format="rwkv"), out=tmp_path / "out", file=tmp_path / "in")

    assert outcome.metrics["exports"] == "rwkv"
    assert open_tokenizer(tmp_path / "out").spec() == like_rwkv().spec()
