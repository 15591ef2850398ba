"""The stages on real text: merges equal those of `tokenizers`, and ids those of `tiktoken`."""

import io
from itertools import islice

import orjson
import pytest
import tiktoken
import zstandard
from tiktoken.load import load_tiktoken_bpe
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.balance.stage import run as balance
from tokmill.tasks.count.stage import run as count
from tokmill.tasks.count.stage import run_shard as count_shard
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.encode.stage import run_shard as encode_shard
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.train.adopt import AdoptParams
from tokmill.tasks.train.adopt import run as adopt
from tokmill.tasks.train.stage import TrainParams
from tokmill.tasks.train.stage import run as train
from tokmill.tokenizer import SPLIT_PATTERNS
from tokmill.tokenizer.core.text import to_bytes

pytestmark = [pytest.mark.shared_data, pytest.mark.slow]


def ntrex(shared_data):
    """Every fourth language; the tests of the trainer use all of them."""
    return {
        path.stem: path.read_text("utf-8").split("\n")
        for path in sorted((shared_data / "ntrex").glob("*.txt"))[::4]
    }


def first_documents(path, num_bytes):
    """The first documents of a .jsonl.zst, `num_bytes` in all."""
    documents, total = [], 0
    with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as raw:
        for line in io.TextIOWrapper(raw, "utf-8"):
            documents.append(orjson.loads(line)["text"])
            total += len(documents[-1].encode())
            if total >= num_bytes:
                return documents
    return documents


def made(folder, stage, params, **inputs):
    folder.mkdir(parents=True)
    stage(params, out=folder, **inputs)
    return folder


def test_merges_on_ntrex_equal_those_of_tokenizers(tmp_path, text_corpus, shared_data):
    documents = ntrex(shared_data)
    corpus = text_corpus(documents)
    params = TrainParams(vocab_size=8_000, tie_break="lowest_ids", split_pattern="gpt2")
    shards = [
        made(tmp_path / f"shard-{index}", count_shard, params.count_params(), shard=value)
        for index, value in enumerate(corpus.shard_values)
    ]
    counts = made(tmp_path / "counts", count, params.count_params(), corpus=corpus.path, shards=shards)
    balanced = made(tmp_path / "balance", balance, BalanceParams(), corpus=corpus.path)
    trained = open_tokenizer(made(tmp_path / "tokenizer", train, params, counts=counts, balance=balanced))

    oracle = Tokenizer(models.BPE())
    oracle.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=8_000 - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    oracle.train_from_iterator((line for lines in documents.values() for line in lines), trainer)
    merges = orjson.loads(oracle.to_str())["model"]["merges"]
    assert trained.merges == [(to_bytes(left), to_bytes(right)) for left, right in merges]


def gpt2(vocabs):
    vocab, special = orjson.loads((vocabs / "gpt2_vocab.json").read_bytes()), {"<|endoftext|>": 50_256}
    ranks = {to_bytes(text): rank for text, rank in vocab.items() if text not in special}
    return AdoptParams(), vocabs / "gpt2_vocab.json", ranks, special


def cl100k(vocabs):
    file, special = vocabs / "cl100k_base.tiktoken", {"<|endoftext|>": 100_257}
    params = AdoptParams(split_pattern="cl100k", special_tokens=special)
    return params, file, load_tiktoken_bpe(str(file)), special


@pytest.mark.parametrize("vocabulary", [gpt2, cl100k])
def test_ids_equal_those_of_tiktoken(tmp_path, text_corpus, shared_data, monkeypatch, vocabulary):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # read the files where they are
    params, file, ranks, special = vocabulary(shared_data / "vocabs")
    name = vocabulary.__name__
    oracle = tiktoken.Encoding(
        name, pat_str=SPLIT_PATTERNS[name], mergeable_ranks=ranks, special_tokens=special
    )
    documents = ntrex(shared_data) | {
        source: first_documents(shared_data / "corpora" / f"{source}.jsonl.zst", 1_000_000)
        for source in ("code", "english_docs")
    }
    corpus = text_corpus(documents)
    adopted = made(tmp_path / "tokenizer", adopt, params, file=file)
    remaining = {source: iter(text for text in texts if text) for source, texts in documents.items()}
    for index, shard in enumerate(corpus.shard_values):
        path = made(tmp_path / f"s-{index}", encode_shard, EncodeParams(), tokenizer=adopted, shard=shard)
        encoded = EncodedShard.open(path)
        texts = list(islice(remaining[shard["shard"]["source"]], encoded.num_documents))
        expected = oracle.encode_ordinary_batch(texts, num_threads=2)
        found = [encoded.document(k).tolist() for k in range(encoded.num_documents)]
        assert found == [[*ids, *special.values()] for ids in expected]
    assert not [source for source, texts in remaining.items() if list(texts)]
