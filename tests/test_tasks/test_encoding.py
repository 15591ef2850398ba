"""Documents into an encoded shard: equal to `Tokenizer.encode` document by document, for any batches."""

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill import tokenizer
from tokmill.tasks.encode.encoding import Additions, encode_batches, end_token_id, keep_documents
from tokmill.tasks.fim.characters import TextFim
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tokenizer.core.errors import LawError, SpecialTokenError

END = "<|endoftext|>"
TEXTS = ["the cat sat", "", "the", "on  the mat, наконец", f"a {END} in the text", "\n\n", "猫が座った"]
END_ID = 279


@functools.cache
def trained():
    return tokenizer.train(TEXTS, vocab_size=280, special_tokens=[END])


def batches_of(texts, num_each, gap=1):
    """The texts in batches; ordinals are multiples of `gap`."""
    for first in range(0, len(texts), num_each):
        part = [text.encode() for text in texts[first : first + num_each]]
        lengths = np.array([len(text) for text in part], dtype=np.int64)
        ordinals = np.arange(first, first + len(part), dtype=np.int64) * gap
        yield DocumentBatch(np.frombuffer(b"".join(part), dtype=np.uint8), offsets_of(lengths), ordinals)


def encoded(out, texts=TEXTS, num_each=3, **how):
    out.mkdir()
    how = {"end_id": END_ID, "min_tokens": 1} | how
    encode_batches(trained(), batches_of(texts, num_each, gap=10), out, **how)
    return EncodedShard.open(out)


def documents(shard):
    return [shard.document(k).tolist() for k in range(shard.num_documents)]


def test_each_document_is_its_own_encoding_and_the_end_token(tmp_path):
    shard = encoded(tmp_path / "s")
    kept = [text for text in TEXTS if text]
    assert documents(shard) == [[*trained().encode(text, as_text=True), END_ID] for text in kept]
    assert shard.ordinals.tolist() == [0, 20, 30, 40, 50, 60]
    assert shard.tokens.dtype == np.uint16
    assert shard.token_counts.tolist() == np.bincount(shard.tokens, minlength=280).tolist()


def test_statistics_are_of_the_kept_text_and_of_what_was_dropped(tmp_path):
    statistics = encoded(tmp_path / "s", min_tokens=5).statistics
    lengths = {text: len(trained().encode(text, as_text=True)) for text in TEXTS}
    kept = [text for text in TEXTS if lengths[text] >= 5]
    dropped = [text for text in TEXTS if lengths[text] < 5]
    assert len(dropped) >= 3
    assert statistics.num_documents == statistics.num_end_tokens == len(kept)
    assert statistics.num_tokens == sum(lengths[text] + 1 for text in kept)
    assert statistics.num_bytes == sum(len(text.encode()) for text in kept)
    assert statistics.num_chars == sum(len(text) for text in kept)
    assert statistics.num_words == sum(len(text.split()) for text in kept)
    assert statistics.num_dropped_documents == len(dropped)
    assert statistics.num_dropped_tokens == sum(lengths[text] for text in dropped)
    assert statistics.num_dropped_bytes == sum(len(text.encode()) for text in dropped)


@pytest.mark.parametrize("num_each", [1, 2, 7])
def test_batches_do_not_change_a_byte(tmp_path, num_each):
    encoded(tmp_path / "one", num_each=3)
    encoded(tmp_path / "two", num_each=num_each)
    for file in sorted(path.name for path in (tmp_path / "one").iterdir()):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_a_begin_token_stands_before_each_document(tmp_path):
    shard = encoded(tmp_path / "s", additions=Additions(begin_id=7))
    plain = encoded(tmp_path / "p")
    assert documents(shard) == [[7, *tokens] for tokens in documents(plain)]
    statistics = shard.statistics
    assert (statistics.num_begin_tokens, statistics.num_end_tokens) == (6, 6)
    assert statistics.num_text_tokens == plain.statistics.num_text_tokens


def test_without_an_end_token_nothing_is_added(tmp_path):
    shard = encoded(tmp_path / "s", end_id=None)
    assert documents(shard)[0] == trained().encode("the cat sat")
    assert shard.statistics.num_end_tokens == 0


def test_special_tokens_in_text_are_text_or_themselves_or_an_error(tmp_path):
    text = [f"a{END}b"]
    as_text = encoded(tmp_path / "text", text).document(0).tolist()
    assert as_text[:-1] == trained().encode(text[0], as_text=True)
    assert END_ID not in as_text[:-1]
    allowed = encoded(tmp_path / "allowed", text, special_tokens_in_text="allowed").document(0).tolist()
    assert allowed == [*trained().encode("a"), END_ID, *trained().encode("b"), END_ID]
    texts = ["plain", "猫", f"猫 {END}"]
    with pytest.raises(SpecialTokenError, match=r"document 20 holds .* '<\|endoftext\|>' at byte 4;"):
        encoded(tmp_path / "raise", texts, special_tokens_in_text="raise")


def test_no_documents_make_an_empty_shard(tmp_path):
    shard = encoded(tmp_path / "s", [])
    assert (shard.num_documents, shard.num_tokens, shard.token_counts.sum()) == (0, 0, 0)


def test_an_unknown_end_token_names_the_known():
    with pytest.raises(SpecialTokenError, match=r"'</s>' is not a special token .*'<\|endoftext\|>'"):
        end_token_id(trained(), "</s>")


@given(
    documents=st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=8),
    min_tokens=st.integers(1, 4),
    end_id=st.one_of(st.none(), st.just(9)),
)
def test_keeping_documents_equals_doing_it_one_by_one(documents, min_tokens, end_id):
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    tokens = np.array([token for document in documents for token in document], dtype=np.uint16)
    kept, offsets = keep_documents(tokens, lengths, lengths >= min_tokens, None, end_id)
    end = [] if end_id is None else [end_id]
    expected = [document + end for document in documents if len(document) >= min_tokens]
    assert kept.tolist() == [token for document in expected for token in document]
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()
    assert kept.dtype == np.uint16


@pytest.mark.parametrize("fim", [None, TextFim(1.0, 0.5, (1, 2, 3), 0)])
def test_an_encoding_that_cannot_be_right_is_not_written_and_its_document_is_named(tmp_path, fim):
    tok = tokenizer.Tokenizer(trained().definition)
    aside = "qzxjkvqz"  # eight ids, which are remembered apart from the others
    texts = ["the cat", "", f"{aside}\n\n" * 4, "the"]
    batches = list(batches_of(texts, 4, gap=10))
    with tok._encoder._encoder.workspace() as workspace:
        cache = workspace.memory.cache
    tok.encode_batch([aside])
    cache.aside[:] = 300
    additions = Additions(None, fim)
    with pytest.raises(LawError, match=r"source 'web', line 20 was encoded wrongly: it has the id 300"):
        encode_batches(
            tok,
            batches,
            tmp_path,
            end_id=END_ID,
            min_tokens=1,
            additions=additions,
            where="source 'web', line {}".format,
        )
