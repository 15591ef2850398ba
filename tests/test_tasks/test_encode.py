"""encode and usage as stages: through plain directories and through the store."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill import tokenizer
from tokmill.tasks.audit.params import AuditParams
from tokmill.tasks.audit.stage import run as audit
from tokmill.tasks.audit.text import AuditShardParams
from tokmill.tasks.audit.text import run as audit_shard
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import External, Request
from tokmill.tasks.encode.stage import ENCODE, ENCODE_SHARD, EncodeParams, run, run_shard
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.tokenizer import open_tokenizer, publish_tokenizer
from tokmill.tasks.store import Store
from tokmill.tasks.usage.stage import USAGE, UsageParams
from tokmill.tasks.usage.stage import run as usage
from tokmill.tasks.usage.summary import read_summary
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.errors import SpecialTokenError

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
    with pytest.raises(SpecialTokenError, match=r"source 'en': all\.jsonl, row 1 .* at byte 4"):
        run_shard(
            EncodeParams(special_tokens_in_text="raise"), out=tmp_path, tokenizer=published, shard=shard
        )


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


def test_shards_of_another_vocabulary_are_refused(tmp_path, encoded):
    _, made = encoded()
    other = tmp_path / "other"
    other.mkdir()
    publish_tokenizer(tokenizer.train(["zz zz"], vocab_size=258, special_tokens=[END]), other, exports=False)
    with pytest.raises(StoreError, match="encoded with 262 ids, but the tokenizer has 258"):
        run(EncodeParams(), out=tmp_path, corpus=made["corpus"], tokenizer=other, shards=made["shards"])
    with pytest.raises(StoreError, match="encode: the corpus has 2 shards and artifacts of 1"):
        run(EncodeParams(), out=tmp_path, corpus=made["corpus"], tokenizer=other, shards=made["shards"][:1])


@pytest.fixture
def audited(tmp_path, text_corpus, published):
    """Audit the tokenizer on DOCUMENTS into a plain directory."""
    corpus, texts = text_corpus(DOCUMENTS, "audited"), []
    for index, value in enumerate(corpus.shard_values):
        texts.append(tmp_path / f"measured-{index}")
        texts[-1].mkdir()
        audit_shard(AuditShardParams(max_bytes=1 << 20), out=texts[-1], tokenizer=published, shard=value)
    out = tmp_path / "audit"
    out.mkdir()
    audit(AuditParams(), out=out, tokenizer=published, corpus=corpus.path, texts=texts)
    return out


def test_use_is_counted_in_what_was_encoded(tmp_path, encoded, audited):
    _, made = encoded()
    out = tmp_path / "usage"
    out.mkdir()
    del made["corpus"]
    outcome = usage(UsageParams(), out=out, audit=audited, **made)
    summary = read_summary(out)
    tok = open_tokenizer(made["tokenizer"])
    texts = [text for texts in DOCUMENTS.values() for text in texts]
    num_text_tokens = sum(len(tok.encode(text)) for text in texts)
    num_bytes = sum(len(text.encode()) for text in texts)
    assert summary.overall.num_tokens == num_text_tokens + 4
    assert outcome.metrics["bytes_per_token"] == summary.overall.bytes_per_token
    assert summary.overall.bytes_per_token == round(num_bytes / num_text_tokens, 6)
    used = {token for text in texts for token in tok.encode(text)}
    assert summary.num_never_encoded_tokens == 261 - len(used)
    assert (out / "summary.md").read_text("utf-8").startswith("# Use of the vocabulary")


def test_an_audit_of_another_vocabulary_is_refused(tmp_path, encoded, audited):
    _, made = encoded()
    table = pq.read_table(audited / "catalog" / "vocab_tokens.parquet")
    ids = pa.array([*table["token_id"].to_pylist()[:-1], 262], pa.uint32())
    pq.write_table(table.set_column(0, "token_id", ids), audited / "catalog" / "vocab_tokens.parquet")
    out = tmp_path / "usage"
    out.mkdir()
    del made["corpus"]
    with pytest.raises(StoreError, match=r"token_id number 261 is 262, and must be in \[0, 262\)"):
        usage(UsageParams(), out=out, audit=audited, **made)


def test_through_the_store_use_lands_in_the_catalog(tmp_path, text_corpus, published, audited):
    store, corpus = Store.open(tmp_path / "store"), text_corpus(DOCUMENTS)
    outside = {
        "corpus": External(digest="c" * 64, value=corpus.path),
        "tokenizer": External(digest="t" * 64, value=published),
    }

    def make(stage, **inputs):
        params = UsageParams() if stage is USAGE else EncodeParams()
        return store.realize(Request(stage, "small", params, inputs))

    def line():
        shards = [make(ENCODE_SHARD, tokenizer=outside["tokenizer"], shard=shard) for shard in corpus.shards]
        refs = [shard.ref for shard in shards]
        encoded = make(ENCODE, **outside, shards=refs)
        given = {"tokenizer": outside["tokenizer"], "encoded": encoded.ref, "shards": refs}
        given["audit"] = External(digest="a" * 64, value=audited)
        return [*shards, encoded, make(USAGE, **given)]

    first, again = line(), line()
    assert [made.cached for made in (*first, *again)] == [False] * 4 + [True] * 4
    manifest = Encoded.open(store.path(first[2].ref)).manifest
    assert [entry.shards[0].digest for entry in manifest.sources] == [
        made.ref.content_digest for made in first[:2]
    ]
    rows = store.catalog.query("SELECT source, num_documents FROM usage_sources ORDER BY source")
    assert [tuple(row.values()) for row in rows] == [("en", 3), ("ru", 1)]
