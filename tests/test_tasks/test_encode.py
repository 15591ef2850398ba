"""Encoded shards: equal to Tokenizer.encode document by document, checked when used; and the stages."""

import functools

import numpy as np
import pytest

from tests.test_tasks.fabricated import write_documents
from tokmill import tokenizer
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.encode.encoding import Additions, encode_batches
from tokmill.tasks.encode.stage import EncodeParams, run, run_shard
from tokmill.tasks.fim.rearrangement import TextFim
from tokmill.tasks.formats.encoded import (
    Encoded,
    EncodedShard,
)
from tokmill.tasks.formats.text.documents import DocumentBatch, offsets_of
from tokmill.tasks.formats.tokenizer import open_tokenizer, publish_tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.errors import LawError, SpecialTokenError

DOCUMENTS = {
    "en": ["the cat", "", "a", "the hat and the cat"],
    "ru": ["кот и кот"],
}
END = "<|endoftext|>"


@pytest.fixture
def published(tmp_path):
    """A small tokenizer, published into a plain directory."""
    texts = [text for texts in DOCUMENTS.values() for text in texts]
    path = tmp_path / "tokenizer"
    path.mkdir()
    publish_tokenizer(tokenizer.train(texts, vocab_size=262, special_tokens=[END]), path, exports=False)
    return path


@pytest.fixture
def encoded(tmp_path, text_corpus, published):
    """Encode DOCUMENTS into plain directories, and give the inputs of `usage`."""

    def make(params=EncodeParams()):  # noqa: B008 - frozen
        corpus, shards = text_corpus(DOCUMENTS), []
        for index, value in enumerate(corpus.shard_values):
            shards.append(tmp_path / f"encoded-{index}")
            shards[-1].mkdir()
            run_shard(params, out=shards[-1], tokenizer=published, shard=value)
        out = tmp_path / "encoded"
        out.mkdir()
        outcome = run(params, out=out, corpus=corpus.path, tokenizer=published, shards=shards)
        return outcome, {"corpus": corpus.path, "tokenizer": published, "encoded": out, "shards": shards}

    return make


def test_the_manifest_lists_the_shards_of_each_source(encoded):
    _, made = encoded()
    manifest = Encoded.open(made["encoded"])
    tok = open_tokenizer(made["tokenizer"])
    assert manifest.sources == ["en", "ru"]
    assert (manifest.manifest.vocab_size, manifest.manifest.dtype) == (262, "uint16")
    assert manifest.manifest.end_of_document_id == 261
    found = {name: EncodedShard.open(path) for name, _, path in manifest.pair(made["shards"])}
    kept = [text for text in DOCUMENTS["en"] if text]
    documents = [found["en"].document(k).tolist() for k in range(found["en"].num_documents)]
    assert documents == [[*tok.encode(text), 261] for text in kept]
    with pytest.raises(StoreError, match="1 shard directories were given and the manifest lists 2"):
        list(manifest.pair(made["shards"][:1]))
    assert found["en"].ordinals.tolist() == [0, 2, 3]


def test_accounts_say_what_was_dropped_and_added(encoded):
    outcome, _ = encoded(EncodeParams(min_tokens=2))
    assert all(account.balanced for account in outcome.accounts)
    accounts = {(account.source, account.unit): account for account in outcome.accounts}
    assert accounts["en", "documents"].num_in == 4
    assert accounts["en", "documents"].became == {"kept": 2, "dropped:min_tokens": 2}
    assert accounts["en", "bytes"].became == {"kept": 26, "dropped:min_tokens": 1}
    tokens = accounts["en", "tokens"]
    assert tokens.added == {"end_of_document": 2}
    assert tokens.num_in + 2 == tokens.became["kept"] + tokens.became["dropped:min_tokens"]
    assert tokens.became["dropped:min_tokens"] == 1


def test_a_special_token_in_a_text_is_named_with_its_file_and_row(tmp_path, text_corpus, published):
    shard = text_corpus({"en": ["fine", f"not {END}"]}).shard_values[0]
    params = EncodeParams(special_tokens_in_text="raise")
    with pytest.raises(SpecialTokenError, match=r"source 'en': all\.jsonl, row 1 .* at byte 4"):
        run_shard(params, out=tmp_path, tokenizer=published, shard=shard)


@pytest.mark.parametrize("policy", ["as_text", "allowed", "raise"])
def test_added_tokens_are_found_whatever_special_ones_are(tmp_path, text_corpus, policy):
    spec = tokenizer.train(DOCUMENTS["en"], vocab_size=262, special_tokens=[END]).spec()
    grown = spec | {"added_tokens": {"<think>": 262, "the": 263}, "version": 3}
    tok = Tokenizer.from_spec(grown)
    publish_tokenizer(tok, tmp_path, exports=False)
    (shard,) = text_corpus({"en": ["<think>the hat", "the<think><think>"]}).shard_values
    (tmp_path / "shard").mkdir()
    params = EncodeParams(special_tokens_in_text=policy, end_of_document="<think>")
    run_shard(params, out=tmp_path / "shard", tokenizer=tmp_path, shard=shard)
    tokens = EncodedShard.open(tmp_path / "shard").tokens.tolist()
    assert tokens == [262, 263, *tok.encode(" hat"), 262, 263, 262, 262, 262]


def test_the_use_of_a_vocabulary_lands_in_the_catalog(traced):
    rows = traced.store.catalog.query("SELECT source, num_documents FROM usage_sources ORDER BY source")
    assert [tuple(row.values()) for row in rows] == [("essays", 1), ("notes", 3), ("web", 6)]


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


def encoded_shard(out, texts=TEXTS, num_each=3, **how):
    out.mkdir()
    how = {"end_id": END_ID, "min_tokens": 1} | how
    encode_batches(trained(), batches_of(texts, num_each, gap=10), out, **how)
    return EncodedShard.open(out)


def documents(shard):
    return [shard.document(k).tolist() for k in range(shard.num_documents)]


@pytest.mark.parametrize("begin_id", [None, 7])
@pytest.mark.parametrize("end_id", [None, END_ID])
@pytest.mark.parametrize("min_tokens", [1, 5])
def test_each_document_is_its_own_encoding_between_its_boundaries(tmp_path, begin_id, end_id, min_tokens):
    shard = encoded_shard(
        tmp_path / "s", min_tokens=min_tokens, end_id=end_id, additions=Additions(begin_id=begin_id)
    )
    encoded = {text: trained().encode(text, as_text=True) for text in TEXTS}
    kept = [text for text in TEXTS if len(encoded[text]) >= min_tokens]
    dropped = [text for text in TEXTS if text not in kept]
    around = [[token] if token is not None else [] for token in (begin_id, end_id)]
    assert documents(shard) == [[*around[0], *encoded[text], *around[1]] for text in kept]
    assert shard.ordinals.tolist() == [10 * TEXTS.index(text) for text in kept]
    assert shard.tokens.dtype == np.uint16
    assert shard.token_counts.tolist() == np.bincount(shard.tokens, minlength=280).tolist()
    statistics = shard.statistics
    expected = {
        "num_documents": len(kept),
        "num_begin_tokens": len(kept) * len(around[0]),
        "num_end_tokens": len(kept) * len(around[1]),
        "num_text_tokens": sum(len(encoded[text]) for text in kept),
        "num_bytes": sum(len(text.encode()) for text in kept),
        "num_chars": sum(map(len, kept)),
        "num_words": sum(len(text.split()) for text in kept),
        "num_dropped_documents": len(dropped),
        "num_dropped_tokens": sum(len(encoded[text]) for text in dropped),
        "num_dropped_bytes": sum(len(text.encode()) for text in dropped),
    }
    assert {name: getattr(statistics, name) for name in expected} == expected


@pytest.mark.parametrize("num_each", [1, 7])
def test_batches_do_not_change_a_byte(tmp_path, num_each):
    encoded_shard(tmp_path / "one", num_each=3)
    encoded_shard(tmp_path / "two", num_each=num_each)
    for file in sorted(path.name for path in (tmp_path / "one").iterdir()):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_special_tokens_in_text_are_text_or_themselves_or_an_error(tmp_path):
    text = [f"a{END}b"]
    as_text = encoded_shard(tmp_path / "text", text).document(0).tolist()
    assert as_text[:-1] == trained().encode(text[0], as_text=True)
    assert END_ID not in as_text[:-1]
    allowed = encoded_shard(tmp_path / "allowed", text, special_tokens_in_text="allowed").document(0).tolist()
    assert allowed == [*trained().encode("a"), END_ID, *trained().encode("b"), END_ID]
    texts = ["plain", "猫", f"猫 {END}"]
    with pytest.raises(SpecialTokenError, match=r"document 20 holds .* '<\|endoftext\|>' at byte 4;"):
        encoded_shard(tmp_path / "raise", texts, special_tokens_in_text="raise")


@pytest.mark.parametrize("fim", [None, TextFim(1.0, 0.5, (1, 2, 3), 0)])
def test_an_encoding_that_cannot_be_right_is_not_written_and_its_document_is_named(tmp_path, fim):
    tok = tokenizer.Tokenizer.from_spec(trained().spec())
    aside = "qzxjkvqz"  # eight ids, which are remembered apart from the others
    texts = ["the cat", "", f"{aside}\n\n" * 4, "the"]
    batches = list(batches_of(texts, 4, gap=10))
    with tok._encoder._encoder.workspace() as workspace:
        cache = workspace.memory.cache
    tok.encode_batch([aside])
    cache.aside[:] = 300
    how = {"end_id": END_ID, "min_tokens": 1, "where": "source 'web', line {}".format}
    with pytest.raises(LawError, match=r"source 'web', line 20 was encoded wrongly: it has the id 300"):
        encode_batches(tok, batches, tmp_path, additions=Additions(None, fim), **how)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("ordinals", np.arange(3), "ordinals.npy: holds 3 values, which must be 2"),
        ("offsets", np.array([0, 3]), "offsets.npy: holds 2 values, which must be 3"),
        ("tokens", np.zeros(4, np.uint16), "tokens.npy: holds 4 values, which must be 3"),
    ],
)
def test_a_file_that_disagrees_is_refused_when_it_is_used(tmp_path, name, values, message):
    write_documents(tmp_path, [[5, 1], [7]], 8)
    np.save(tmp_path / f"{name}.npy", values)
    shard = EncodedShard.open(tmp_path)
    with pytest.raises(StoreError, match=message):
        getattr(shard, name)
