"""WordPiece over raw text: as the normalizer, the split pattern and the model one after the other."""

import numpy as np
import pytest
import unicodedata2 as unicodedata
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import BERT, any_text
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.cache import BLOCK
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.wordpiece.model import WordPieceModel
from tokmill.tokenizer.wordpiece.raw_words import MAX_WORD

NORMALIZERS = [BERT, "bert_clean+cjk_spaces", "lowercase", "nmt", 'replace("e","f g,")+lowercase']
SPECIALS = ["[UNK]", "[SEP]"]
PIECES = ["the", "there", "fox", "a", "b", "ab", "e", "s", "1", "12", ",", "猫", "今", "ß", "각", "ᄀ", "は"]
# marks that vanish, that stay, and that change places; characters that vanish; white space of several sorts
NASTY = "aB1, é\u0301\u0323\u302e\U0001d165\u200b\u00ad\x00\x85\xa0\u3000\u2028\t\n\ufffdÅİΣ각漢字は,。ﬁ½①"


def made(normalizer: str | None = BERT, pattern: str = "bert", **rules: object) -> Tokenizer:
    texts = [*PIECES, *(f"##{piece}" for piece in PIECES)]
    vocabulary = Vocabulary.build(
        {i: text.encode() for i, text in enumerate(texts, 2)}, {name: i for i, name in enumerate(SPECIALS)}
    )
    model = WordPieceModel(vocabulary, **rules)  # type: ignore[arg-type]
    return Tokenizer(Definition.compose(model, split_pattern=pattern, normalizer=normalizer))


def quickly(tok: Tokenizer, documents: list[bytes]) -> list[list[int]]:
    """The ids as they are made, with nothing in the memory of words, and again with all of them there."""
    data, offsets = pack_bytes(documents)
    first = Tokenizer.from_spec(tok.spec()).encode_buffers(data, offsets, as_text=True).to_lists()
    assert first == tok.encode_buffers(data, offsets, as_text=True).to_lists()
    assert first == tok.encode_buffers(data, offsets, as_text=True).to_lists()
    return first


def by_parts(tok: Tokenizer, documents: list[bytes]) -> list[list[int]]:
    """The ids by normalizing, cutting and encoding the pre-tokens."""
    data, offsets = tok.definition.normalizer.buffers(*pack_bytes(documents))
    found = tok.splitter.split(data, offsets)
    cuts = np.append(found.starts, found.ends[-1:]) if len(found.starts) else np.zeros(1, np.int64)
    ids, ends = tok.encode_pretokens(data, cuts).ids, tok.encode_pretokens(data, cuts).offsets
    bounds = ends[found.offsets].tolist()
    return [ids[bounds[i] : bounds[i + 1]].tolist() for i in range(len(documents))]


TOKENIZERS = {
    (name, by_part): made(
        name, unknown="part" if by_part else "word", max_input_chars_per_word=9 if by_part else 100
    )
    for name in NORMALIZERS
    for by_part in (False, True)
}


@pytest.mark.parametrize("by_part", [False, True])
@pytest.mark.parametrize("name", NORMALIZERS)
@given(
    texts=st.lists(
        st.one_of(any_text(), st.text(NASTY, max_size=90), st.text("aB1, ", max_size=200)), max_size=6
    )
)
def test_ids_are_those_of_the_parts(name, by_part, texts):
    documents = [text.encode("utf-8", "replace") for text in texts]
    tok = TOKENIZERS[name, by_part]
    assert quickly(tok, documents) == by_parts(tok, documents)


@given(documents=st.lists(st.one_of(st.binary(max_size=80), st.just("é the, 猫".encode())), max_size=6))
def test_bytes_that_are_no_text_are_encoded_by_the_parts(documents):
    tok = TOKENIZERS[BERT, False]
    assert quickly(tok, documents) == by_parts(tok, documents)


@pytest.mark.parametrize("character", ["a", "e", "É", "각", "\u0301"])
@pytest.mark.parametrize("by_part", [False, True])
def test_words_of_every_length(character, by_part):
    """Shorter and longer than what is remembered in either table, taken at once, or encoded here at all."""
    tok = made(max_input_chars_per_word=1 << 20, unknown="part" if by_part else "word")
    lengths = [*range(1, 36), 63, 64, 65, 127, 128, 129, MAX_WORD - 1, MAX_WORD, MAX_WORD + 1]
    documents = [f"{'x' * before},{character * n} the".encode() for n in lengths for before in (0, 1, 7)]
    assert quickly(tok, documents) == by_parts(tok, documents)


@pytest.mark.parametrize("number", [BLOCK - 65, BLOCK - 64, BLOCK - 63, BLOCK - 1, BLOCK, BLOCK + 1])
@pytest.mark.parametrize("word", [",", "a ", "猫", "é ", "abababababababab "])
def test_blocks_of_every_number_of_units(number, word):
    tok = TOKENIZERS[BERT, False]
    documents = [(word * number).encode(), b"the", (word * number + "the").encode()]
    assert quickly(tok, documents) == by_parts(tok, documents)


def test_every_character_is_encoded_as_by_the_parts():
    assigned = [
        chr(point)
        for point in range(0x110000)
        if not 0xD800 <= point < 0xE000 and unicodedata.category(chr(point)) not in {"Cn", "Co"}
    ]
    texts = ["".join(f"a{one}b" for one in assigned[i : i + 97]) for i in range(0, len(assigned), 97)]
    documents = [text.encode() for text in texts]
    tok = TOKENIZERS[BERT, True]
    assert quickly(tok, documents) == by_parts(tok, documents)


def test_special_tokens_stand_for_themselves():
    tok = TOKENIZERS[BERT, False]
    text = "The,[SEP]é the[UNK]\u0301a[SEP]"
    ids = tok.encode_batch([text, "", "fox"], allowed_special="all").to_lists()
    parts = [by_parts(tok, [part.encode()])[0] for part in ("The,", "é the", "\u0301a", "fox")]
    assert ids == [[*parts[0], 1, *parts[1], 0, *parts[2], 1], [], parts[3]]


def test_more_ids_than_expected_find_room():
    tok = TOKENIZERS[BERT, False]
    documents = [b"," * 600_000, "각".encode() * 1000 + b" ", b"the"]
    assert quickly(tok, documents) == by_parts(tok, documents)


def test_the_law_holds_for_what_is_remembered():
    tok = TOKENIZERS[BERT, False]
    encoder = tok.definition.model.encoder()
    raw = encoder.raw_text(tok.definition.normalizer, tok.splitter)
    data, offsets = pack_bytes(["The fox, zzz 猫 각".encode(), b"there \x00ab", b""])
    for _ in range(2):
        with raw.workspace() as workspace:
            (ids, ends, unknown), bounds = workspace.encode(data, offsets, np.full(3, -1))
        assert encoder.law.breach(ids, ends, bounds, unknown) is None
        changed = ids.copy()
        changed[ends[1]] += 1
        assert encoder.law.breach(changed, ends, bounds, unknown).segment == 1
