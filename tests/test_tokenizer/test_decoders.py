"""Decoders: what tokenizers' decoders of the same meaning make of tokens, whole and as a stream."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders

from tokmill.tokenizer import VocabularyError
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
def test_tokens_become_the_text_of_tokenizers(name, data):
    parts = PARTS.get("metaspace_first" if name.startswith("metaspace") else name, ["a", " b", "é"])
    tokens = parts if data is None else data.draw(st.lists(st.sampled_from(parts), max_size=8))
    decoder = Decoder(name)
    text = THEIRS[name].decode(tokens)
    assert decoder.join([token.encode() for token in tokens]).decode() == text
    ids = {token: i for i, token in enumerate(parts)}
    by_id = decoder.of(Vocabulary.build({i: token.encode() for token, i in ids.items()}, {}))
    assert by_id.decode([ids[token] for token in tokens]).decode() == text
    assert "".join(by_id.stream([ids[token] for token in tokens], "strict")) == text


def test_every_decoder_is_compared_but_that_of_sentencepiece():
    assert {*DECODERS} - {*THEIRS} == {"metaspace"}


TOKENS = ["un", "##run", "##ning"]
VOCABULARY = Vocabulary.build({i: text.encode() for i, text in enumerate(TOKENS)}, {"[CLS]": 30})


@pytest.mark.parametrize("ids", [[0, 3], [-1], [0] * 5000 + [31]])
def test_an_id_without_a_token_is_named(ids):
    with pytest.raises(VocabularyError, match=f"id {ids[-1]} at position {len(ids) - 1}"):
        Decoder("wordpiece").of(VOCABULARY).decode(ids)


@pytest.mark.parametrize("name", ["wordpiece", "wordpiece_cleanup"])
@pytest.mark.parametrize("size", [50, 5000])
def test_many_words_are_joined_as_the_library_joins_them(name, size):
    tokens = random.Random(size).choices([*PARTS["wordpiece"], *PARTS["wordpiece_cleanup"]], k=size)
    assert Decoder(name).join([token.encode() for token in tokens]).decode() == THEIRS[name].decode(tokens)
