"""Encoding and decoding: golden ids by hand, the slow reference, and the laws."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import SPECIALS, any_text, by_kernel
from tokmill import tokenizer
from tokmill.tokenizer import SpecialTokenError, Tokenizer, TokenizerError, VocabularyError
from tokmill.tokenizer.byte_bpe import model
from tokmill.tokenizer.byte_bpe import ranks as rank_formats
from tokmill.tokenizer.byte_bpe.model import define
from tokmill.tokenizer.components.specials import chunks
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.reference import byte_bpe as reference


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    """256 = at, 257 = cat, 258 = " cat", 259 = <s>, 260 = <s><s>."""
    return tokenizer.train_from_counts(
        {b"cat": 5, b" cat": 3, b"rat": 2}, vocab_size=256 + 3 + 2, special_tokens=["<s>", "<s><s>"]
    )


def reference_ids(tok: Tokenizer, text: str, specials: dict[str, int]) -> list[int]:
    """Encode by the definitions: cut special tokens out, split, merge."""
    ranks = {pair: rank for rank, pair in enumerate(tok.merges)}
    data, ids, position = buffers.utf8(text), [], 0
    found = reference.find_specials(data, {name.encode(): i for name, i in specials.items()})
    for start, end, special in [*found, (len(data), len(data), -1)]:
        for piece in tok.splitter.split_text(data[position:start].decode()):
            ids += [tok.vocab[part] for part in reference.encode_pretoken(piece.encode(), ranks)]
        if special >= 0:
            ids.append(special)
        position = end
    return ids


ONE, ALL = {"allowed_special": {"<s>"}}, {"allowed_special": "all"}


@pytest.mark.parametrize(
    ("text", "how", "expected"),
    [
        ("cat cat rat\n", {}, [b"cat", b" cat", b" ", b"r", b"at", b"\n"]),
        ("a<s>cat", ONE, [b"a", b"<s>", b"cat"]),
        ("a<s>", {"as_text": True}, [b"a", b"<", b"s", b">"]),
        ("<s><s><s>", ALL, [b"<s><s>", b"<s>"]),
        ("<s><s><s>", {**ONE, "as_text": ["<s><s>"]}, [b"<s>"] * 3),
        ("a\ud800", {}, [b"a", b"\xef", b"\xbf", b"\xbd"]),
        (b"a\xff", {}, [b"a", b"\xff"]),
        ("", {}, []),
    ],
)
def test_tokens_by_hand(tiny, text, how, expected):
    assert [tiny.token_bytes(i) for i in by_kernel(tiny, text, **how)] == expected
    across = tiny.encode_batch(["<s", ">", "<s>"], allowed_special="all")
    assert [len(ids) for ids in across] == [2, 1, 1]


@pytest.mark.parametrize(
    ("text", "how", "says"),
    [
        ("é <s>", {}, "document 0 holds the special token '<s>' at byte 3"),
        ("<s><s>", ONE, "'<s><s>' at byte 0"),
        ("cat", {"allowed_special": {"<t>"}}, "'<t>', which is not a special token"),
        ("cat", {"as_text": ["<t>"]}, "as_text names '<t>'"),
        ("cat", {**ONE, "as_text": ["<s>"]}, "both in allowed_special and in as_text"),
    ],
)
def test_special_tokens_need_permission_and_a_name(tiny, text, how, says):
    with pytest.raises(SpecialTokenError, match=says):
        by_kernel(tiny, text, **how)


def test_half_characters_are_replaced_held_back_or_refused(small):
    ids = [small.vocab[bytes([byte])] for byte in "é".encode()]
    assert small.decode(ids[:1]) == "\ufffd"
    assert list(small.decode_stream([*ids, ids[0]])) == ["é", "\ufffd"]
    with pytest.raises(UnicodeDecodeError):
        small.decode(ids[:1], errors="strict")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_arrow_strings_are_read_where_they_lie(small, kind):
    texts = ["skipped", "the fox", "", "今天 there", "é"]
    array = pa.array([text.encode() for text in texts]).cast(kind)
    expected = small.encode_batch(texts).to_lists()
    assert small.encode_arrow(array).to_lists() == expected
    assert small.encode_arrow(array[1:4]).to_lists() == expected[1:4]
    assert small.encode_arrow(array[2:3]).to_lists() == [[]]
    chunked = pa.chunked_array([array[3:], array[:0], array[:2]], type=kind)
    assert small.encode_arrow(chunked).to_lists() == expected[3:] + expected[:2]
    assert len(small.encode_arrow(pa.chunked_array([], type=kind))) == 0
    assert len(small.encode_arrow(array[:0])) == 0


def test_arrow_arrays_that_are_no_texts(small):
    with pytest.raises(TokenizerError, match="got int64, but"):
        small.encode_arrow(pa.array([1]))
    with pytest.raises(TokenizerError, match="got list, but"):
        small.encode_arrow(["the"])
    with pytest.raises(TokenizerError, match=r"string 3 is null \(1 nulls in all\)"):
        small.encode_arrow(pa.chunked_array([["a", "b"], ["c", None]]))


def test_buffers_are_read_wherever_they_lie(small):
    data = np.frombuffer(b"skipped the fox there", np.uint8)
    batch = small.encode_buffers(data, np.array([8, 11, 11, 21], np.int32))
    assert [small.decode(ids) for ids in batch] == ["the", "", " fox there"]
    spread = np.repeat(data, 2)[::2]
    assert small.encode_buffers(spread, [8, 11]).to_lists() == [small.encode("the")]


@pytest.mark.parametrize(
    ("data", "offsets", "says"),
    [
        (np.zeros(3, np.int8), [0, 3], "dtype int8"),
        (np.zeros((2, 2), np.uint8), [0, 3], "2 dimensions"),
        (np.zeros(3, np.uint8), [0, 4], "within the 3 bytes"),
        (np.zeros(3, np.uint8), [2, 1], "never decrease"),
        (np.zeros(3, np.uint8), [-1, 1], "from -1 to 1"),
        (np.zeros(3, np.uint8), [], "shape"),
        (np.zeros(3, np.uint8), [0.0, 3.0], "integers"),
    ],
)
def test_buffers_that_make_no_sense(small, data, offsets, says):
    with pytest.raises(TokenizerError, match=says):
        small.encode_buffers(data, offsets)


@given(st.lists(st.integers(0, 299)), st.sampled_from([list, tuple, iter, np.array]))
def test_a_few_ids_decode_as_many_do(small, ids, form):
    expected = b"".join(small.definition.tokens[token] for token in ids)
    assert small.decode_bytes(form(ids)) == expected
    assert small.decode_bytes(ids * (4096 // max(len(ids), 1) + 1)) == expected * (
        4096 // max(len(ids), 1) + 1
    )
    assert b"".join(map(small.token_bytes, ids)) == expected


@pytest.mark.parametrize("text", [None, 7, ["a"], pa.scalar("a")])
def test_what_is_no_text_is_refused(small, text):
    for call in (small.encode, small.count_tokens, small.normalize, small.encode_with_offsets):
        with pytest.raises(TokenizerError, match="must be str, or bytes of UTF-8"):
            call(text)
    with pytest.raises(TokenizerError, match="text 1: "):
        small.encode_batch(["a", text])
    for texts in ("abc", b"abc", bytearray(b"a")):
        with pytest.raises(TokenizerError, match="is one text, but several are asked for"):
            small.encode_batch(texts)


def test_a_tokenizer_is_its_spec(small):
    again = Tokenizer.from_spec(small.spec())
    assert again == small
    assert hash(again) == hash(small)
    assert pickle.loads(pickle.dumps(small)) == small
    other = tokenizer.train_from_counts({b"ab": 1}, vocab_size=257)
    assert other != small


def test_normalizers_work_around_special_tokens():
    tok = tokenizer.train(["abc"], vocab_size=256 + 1, special_tokens=["<END>"], normalizer="nfkc+lowercase")
    text = "ＡB<END>C<end>"
    assert tok.normalize(text) == "ab<end>c<end>"
    assert tok.normalize(text, allowed_special="all") == "ab<END>c<end>"
    ids = tok.encode(text, allowed_special="all")
    assert tok.decode(ids) == "ab<END>c<end>"
    assert ids.count(tok.special_tokens["<END>"]) == 1
    data, offsets = tok.normalize_buffers(*buffers.pack(["É<END>", "É"]), allowed_special="all")
    assert buffers.unpack(data, offsets) == ["é<END>".encode(), "é".encode()]
    assert tok.encode_with_offsets("ÀA")[1] == [(0, 1), (0, 1), (1, 2)]


small_vocabularies = st.lists(st.text("ab", min_size=2, max_size=5).map(str.encode), unique=True, max_size=12)


@given(small_vocabularies, st.text("ab", max_size=30))
def test_merges_follow_from_ranks_as_tiktoken_uses_them(tokens, text):
    ranks = {i: bytes([i]) for i in range(256)} | {256 + i: token for i, token in enumerate(tokens)}
    definition = rank_formats.definition_of(ranks, {}, split_pattern=r"[\s\S]+", ignore_merges=None)
    vocab = {token: i for i, token in ranks.items()}
    expected = reference.encode_by_token_ranks(text.encode(), vocab) if text else []
    assert by_kernel(Tokenizer(definition), text) == expected


BEYOND_ASCII = [b"a", b" ", b"\xc2", b"\xc3", b"\xe3", b"\xe0", b"\x81", b"\x82", b"\xa9", b"\xf0", b"\xed"]


@st.composite
def merges_in_any_order(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Merges of bytes beyond ASCII, in the order of their parts or in any other."""
    tokens, pairs = list(BEYOND_ASCII), []
    for _ in range(draw(st.integers(0, 25))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if left + right not in tokens and len(left + right) < 8:
            tokens.append(left + right)
            pairs.append((left, right))
    return draw(st.permutations(pairs)) if draw(st.booleans()) else pairs


@given(merges_in_any_order(), st.lists(st.sampled_from(BEYOND_ASCII), max_size=40).map(b"".join))
def test_cutting_where_no_token_reaches_across_changes_nothing(pairs, data):
    tokens = {i: bytes([i]) for i in range(256)} | {256 + i: a + b for i, (a, b) in enumerate(pairs)}
    tok = Tokenizer(define(tokens, pairs, {}, split_pattern=r"[\s\S]+"))
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    expected = [tok.vocab[part] for part in reference.encode_pretoken(data, ranks)] if data else []
    assert tok.encode_buffers(np.frombuffer(data, np.uint8), [0, len(data)]).ids.tolist() == expected


NO_IDS = [[[1], [2]], [[1], [2, 3]], [1.0], ["1"], "ab", None, 5, [None], {}.keys]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        *(([1, 2, bad], f"id {bad} at position 2") for bad in (-1, 351, 10**9)),
        *(([1, bad], f"id {bad} at position 1 is not a token") for bad in (1 << 63, 1 << 64, -(1 << 63) - 1)),
        *((bad, "decode: ids of .* must be a flat sequence of integers") for bad in NO_IDS),
    ],
)
def test_ids_that_are_no_tokens_are_named(small, ids, says):
    with pytest.raises(TokenizerError, match=says):
        small.decode(ids)


def test_a_vocabulary_goes_in_both_ways_and_may_have_holes(small):
    how = {"split_pattern": "o200k", "num_reserved": 2, "unicode": small.definition.unicode}
    again = Tokenizer.from_vocab(small.vocab, small.merges, special_tokens=small.special_tokens, **how)
    turned = {token: text for text, token in small.vocab.items()}
    assert (
        again
        == Tokenizer.from_vocab(turned, small.merges, special_tokens=[*small.special_tokens], **how)
        == small
    )
    plain = {
        text: token
        for text, token in small.vocab.items()
        if text.decode("latin1") not in small.special_tokens
    }
    added = Tokenizer.from_vocab(plain, small.merges, special_tokens=["<new>"], split_pattern="gpt2")
    assert added.special_tokens == {"<new>": max(plain.values()) + 1}
    holes = Tokenizer.from_vocab({**small.vocab, b"far away": 400}, small.merges)
    assert holes.decode([400, 0]) == "far away!"
    for hole in (small.vocab_size, 399):
        with pytest.raises(VocabularyError, match=f"id {hole} at position 1 is not a token"):
            holes.decode([0, hole])


BYTES = {bytes([byte]): byte for byte in range(256)}


@pytest.mark.parametrize(
    ("vocab", "merges", "specials", "says"),
    [
        ([b"a"], [], {}, "list must be a mapping"),
        ({b"a": 0, 1: b"b"}, [], {}, "in the same order in all entries"),
        ({"a": 0}, [], {}, "must be bytes and an integer id"),
        ({b"a": 0, b"b": 0}, [], {}, "b'a' and b'b' have the same id 0"),
        (BYTES, [(b"a", "b")], {}, "merge 0 is .* must be a pair"),
        (BYTES, [(b"a", b"b")], {}, "b'ab' is not a token"),
        ({b"a": 0}, [], {}, "255 of the 256 bytes"),
        (BYTES | {b"ab": 256}, [(b"a", b"b")] * 2, {}, "merged twice"),
        (BYTES | {b"ab": -1}, [], {}, "id -1"),
        (BYTES, [], {"<s>": 7}, "id 7 is the token"),
    ],
)
def test_vocabularies_that_are_none(vocab, merges, specials, says):
    with pytest.raises(VocabularyError, match=says):
        Tokenizer.from_vocab(vocab, merges, special_tokens=specials)


def test_chunks_hold_every_segment_once():
    bounds = np.cumsum([0, 5 << 18, 1, 1, 3 << 17, 3 << 17, 0, 0])
    ranges = list(chunks(bounds))
    assert [first for first, _ in ranges] + [7] == [0] + [last for _, last in ranges]
    assert ranges == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 7)]


texts = any_text() | st.text("aéąжあ中한ﬁ ", max_size=40)


@given(
    st.lists(texts, max_size=4),
    st.sampled_from([{}, *({name: 1} for name in SPECIALS), dict.fromkeys(SPECIALS)]),
)
def test_ids_are_those_of_the_reference_and_text_comes_back(small, texts, allowed):
    specials = {name: small.special_tokens[name] for name in allowed}
    how = {"allowed_special": {*allowed}, "as_text": small.special_tokens.keys() - specials.keys()}
    batch = small.encode_batch(texts, **how)
    expected = [reference_ids(small, text, specials) for text in texts]
    assert batch.to_lists() == expected
    assert (batch.ids.dtype, small.decode_batch(batch)) == (np.uint16, texts)
    for text, ids in zip(texts, expected, strict=True):
        assert small.encode(text, **how) == ids
        assert small.count_tokens(text, **how) == len(ids)
        assert "".join(small.decode_stream(ids)) == text
        found, spans = small.encode_with_offsets(text, **how)
        assert found == ids
        for token, (start, end) in zip(ids, spans, strict=True):
            assert small.token_bytes(token) in text[start:end].encode()
        assert "".join(text[a:b] for (a, b) in dict.fromkeys(spans)).startswith(text[:1])


def test_threads_of_our_own_change_nothing(small):
    texts = [f"the fox {number} there 今天 " * (number % 7 * 900) for number in range(60)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(small.encode, texts)) == small.encode_batch(texts).to_lists()
    with pytest.raises(TokenizerError, match="num_threads=0 must be at least 1"):
        small.encode_batch(texts, num_threads=0)


def test_caches_that_overflow_change_nothing(monkeypatch):
    words = [f"w{number:07x}" * (1 + number % 4) for number in range(3000)]
    tok = tokenizer.train([" ".join(words[:50])], vocab_size=300, split_pattern="gpt2")
    text = " ".join(words + words)
    ids = by_kernel(tok, text)
    assert tok.decode(ids) == text
    monkeypatch.setattr(model, "_CACHE_BITS", (3, 2, 5))
    assert ids == by_kernel(Tokenizer.from_spec(tok.spec()), text)
