"""Decoders: what tokenizers' decoders of the same meaning make of tokens, whole and as a stream."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Hugging
from tokenizers import decoders

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import FormatError, Tokenizer
from tokmill.tokenizer.components.decoders import DECODERS, Decoder
from tokmill.tokenizer.core.vocabulary import Vocabulary

SPACES, FIRST = decoders.Replace("▁", " "), decoders.Strip(" ", 1, 0)
THEIRS = {
    "fuse": decoders.Fuse(),
    "wordpiece": decoders.WordPiece(cleanup=False),
    "wordpiece_cleanup": decoders.WordPiece(cleanup=True),
    "metaspace_first": decoders.Metaspace(),
    "metaspace_never": decoders.Sequence([SPACES, decoders.Fuse()]),
    "metaspace_fused": decoders.Sequence([SPACES, decoders.Fuse(), FIRST]),
    "end_of_word": decoders.BPEDecoder(),
}
PARTS = {
    "wordpiece": ["##", "a", "##ing", "un", "#", ".", "é"],
    "wordpiece_cleanup": ["##", "a", "##'", "'", "s", "n't", "do", "not", ".", "!", "##?", "'re", ","],
    "metaspace_first": ["▁", "▁▁", "▁a", "a▁b", "é", "b▁"],
    "end_of_word": ["a", "a</w>", "</w>", "é</w>", "<", "w"],
}


@pytest.mark.parametrize("name", THEIRS)
@given(st.data())
@example(None)
def test_tokens_become_the_text_of_tokenizers(name: str, data: st.DataObject | None) -> None:
    parts = PARTS.get("metaspace_first" if name.startswith("metaspace") else name, ["a", " b", "é"])
    tokens = parts if data is None else data.draw(st.lists(st.sampled_from(parts), max_size=8))
    decoder = Decoder(name)
    text = THEIRS[name].decode(tokens)
    assert decoder.join([token.encode() for token in tokens]).decode() == text
    ids = {token: i for i, token in enumerate(parts)}
    by_id = decoder.of(Vocabulary.build({i: token.encode() for token, i in ids.items()}, {}))
    assert by_id.decode([ids[token] for token in tokens]).decode() == text
    assert "".join(by_id.stream([ids[token] for token in tokens], "strict")) == text


def test_every_decoder_is_compared_but_that_of_sentencepiece() -> None:
    assert {*DECODERS} - {*THEIRS} == {"metaspace"}


def with_decoder(tok: Tokenizer, folder: Path, value: Any) -> Path:
    file = next(file for file in tok.save(folder, "huggingface") if file.name == "tokenizer.json")
    file.write_text(json.dumps(json.loads(file.read_bytes()) | {"decoder": value}), encoding="utf-8")
    return file


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": ""}


@pytest.mark.parametrize("value", [BYTES, {"type": "Sequence", "decoders": [BYTES, {"type": "Fuse"}]}])
def test_byte_level_files_decode_as_tokenizers_does(small: Tokenizer, tmp_path: Path, value: Any) -> None:
    file = with_decoder(small, tmp_path, value)
    theirs, ours = Hugging.from_file(str(file)), tokenizer.load(file)
    for text in TRAINING_TEXTS:
        ids = ours.encode(text)
        assert ours.decode(ids) == theirs.decode(ids) == text


@pytest.mark.parametrize(
    "value",
    [
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        {
            "type": "Sequence",
            "decoders": [BYTES, {"type": "Replace", "pattern": {"String": "a"}, "content": ""}],
        },
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, BYTES]},
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
    ],
)
@pytest.mark.parametrize("family", ["byte_bpe", "wordpiece", "word_bpe", "word_level"])
def test_a_decoder_that_is_not_a_familys_is_refused_by_name(family: str, value: Any, tmp_path: Path) -> None:
    if (family, value) == ("word_level", {"type": "Fuse"}):
        return
    size = {"byte_bpe": 280, "word_level": 40}.get(family, 120)
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=size, family=family, allow_smaller=True)
    with pytest.raises(FormatError, match="decoder"):
        tokenizer.load(with_decoder(tok, tmp_path, value))
