"""Scores: noise by hand, the trigram model against a slow one, held-out documents, columns of a source."""

import functools
import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tasks.fabricated import encoded_corpus, made, write_documents
from tests.test_tasks.planned import Planned
from tests.test_tasks.reading import ingested
from tokmill import tokenizer
from tokmill.tasks.core.errors import MixingError, SourceError, StoreError
from tokmill.tasks.encode.stage import ENCODE_SHARD, EncodeParams
from tokmill.tasks.formats.encoded import EncodedShard, ScoredShard, write_scores
from tokmill.tasks.formats.tokenizer import publish_tokenizer
from tokmill.tasks.kernels.scoring import surprisals
from tokmill.tasks.score.kneser_ney import train
from tokmill.tasks.score.measures import TrigramModels, noise_of
from tokmill.tasks.score.stage import (
    FIT_TRIGRAMS,
    SCORE_COLUMN,
    SCORE_NOISE,
    SCORE_PERPLEXITY,
    ColumnParams,
    NoiseParams,
    PerplexityParams,
    TrigramParams,
)


@functools.cache
def of_bytes():
    return tokenizer.train(["ab"], family="byte_bpe", vocab_size=257, special_tokens=["<|endoftext|>"])


END = 256


def noise(folder, *texts, end_id=None):
    """The noise of texts encoded as bytes: one list per measure."""
    vocab = of_bytes().vocab
    documents = [text.encode() if isinstance(text, str) else text for text in texts]
    documents = [
        [vocab[bytes([byte])] for byte in one] if isinstance(one, bytes) else one for one in documents
    ]
    folder.mkdir(exist_ok=True)
    write_documents(folder, documents, of_bytes().vocab_size)
    found = noise_of(of_bytes(), EncodedShard.open(folder), end_id)
    return {name: values.tolist() for name, values in found.items()}


@pytest.mark.parametrize(
    ("measure", "texts", "expected"),
    [
        ("symbols", ["ab, c!", "été\u0301\n", "1+1=2", "日本。", ""], [2 / 6, 0, 1, 1 / 3, 0]),
        # the last is half a character: three letters and one error
        ("decoding_errors", ["a\tb\r\n", "a\x00\x9fb", "\ufffd\ufffda", "\ue000", b"abc\xc3"],
         [0, 2 / 4, 2 / 3, 1, 1 / 4]),
        # aaaaa: aaa, aaa, aaa; abcabc: abc bca cab abc; ab: none
        ("repetition", ["aaaaa", "abcabc", "abcdef", "ab"], [2 / 3, 1 / 4, 0, 0]),
        # abcd, then one match for the rest: 4 × 2 bits + 24 bits, of 32 × 8 bits. abcdefgh: 8 × 3 bits of 64.
        ("compression", ["abcd" * 8, "abcdefgh", "aaaa"], [(8 + 24) / 256, 24 / 64, 0]),
    ],
)  # fmt: skip
def test_noise_by_hand(tmp_path, measure, texts, expected):
    assert noise(tmp_path, *texts)[measure] == pytest.approx(expected)


def test_the_end_token_is_not_text(tmp_path):
    text = of_bytes().encode("ab, c!")
    with_end = noise(tmp_path / "a", [*text, END], end_id=END)
    assert with_end == noise(tmp_path / "b", "ab, c!")


def test_text_that_became_an_unknown_token_is_not_measured(tmp_path):
    words = tokenizer.train(["ab c"], family="word_level", vocab_size=9)
    write_documents(tmp_path, [words.encode(text) for text in ("ab!!!! c", "!!!!")], words.vocab_size)
    found = noise_of(words, EncodedShard.open(tmp_path), None)
    assert found["symbols"].tolist() == [0, 0]
    assert found["compression"].tolist()[1] == 1  # a document of unknown tokens only


def test_documents_are_measured_alone_however_they_come_in_blocks(tmp_path):
    texts = ["abcabcabc, déjà vu! " * k for k in range(12)]
    together = noise(tmp_path / "all", *texts)
    alone = [noise(tmp_path / str(k), text) for k, text in enumerate(texts)]
    for name, values in together.items():
        assert values == [one[name][0] for one in alone]


def slow_model(documents, size):
    """P(w | u v) of an interpolated Kneser-Ney model, from the formulas; `size` is the start mark."""
    trigrams = Counter()
    for document in documents:
        ids = [size, size, *document]
        trigrams.update(zip(ids, ids[1:], document, strict=False))
    bigrams = Counter((v, w) for _, v, w in trigrams)
    unigrams = Counter(w for _, w in bigrams)

    def discount(counts):
        once, twice = (sum(count == k for count in counts.values()) for k in (1, 2))
        return once / (once + 2 * twice) if once and twice else 0.5

    def chance(w, *context):
        counts = {0: unigrams, 1: bigrams, 2: trigrams}[len(context)]
        of_context = [count for gram, count in counts.items() if not context or gram[:-1] == context]
        lower = chance(w, *context[1:]) if context else 1 / size
        if not of_context:
            return lower
        taken = discount(counts)
        own = counts[(*context, w)] if context else counts[w]
        return (max(own - taken, 0) + taken * len(of_context) * lower) / sum(of_context)

    return chance


DOCUMENTS = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=6)


def surprisal(model, documents):
    tokens = np.array([token for document in documents for token in document], dtype=np.int64)
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    out = np.zeros(len(documents), dtype=np.float32)
    surprisals(tokens, np.cumsum(lengths) - lengths, lengths, np.arange(len(documents)), model, out)
    return out.tolist()


@settings(max_examples=40)
@given(DOCUMENTS, DOCUMENTS)
def test_the_model_equals_the_slow_one(seen, unseen):
    chance = slow_model(seen, 5)
    model = train([np.array(document, dtype=np.uint16) for document in seen], 5)
    for document, found in zip(unseen, surprisal(model, unseen), strict=True):
        ids = [5, 5, *document]
        nats = [-math.log(chance(w, u, v)) for u, v, w in zip(ids, ids[1:], document, strict=False)]
        assert found == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def test_a_vocabulary_that_does_not_fit_is_refused():
    with pytest.raises(MixingError, match="a vocabulary of 3000000 is too large for perplexity"):
        train([np.array([1], dtype=np.uint32)], 3_000_000)


def scored(tmp_path, documents, **params):
    """Perplexity scores of one source's shards."""
    corpus = encoded_corpus(tmp_path, {"a": documents})
    model = tmp_path / "model"
    made(FIT_TRIGRAMS, TrigramParams(**params), model, **corpus.inputs)
    found = []
    for index, shard in enumerate(corpus.shards):
        out = tmp_path / f"scores-{index}"
        made(SCORE_PERPLEXITY, PerplexityParams(), out, model=model, shard=shard)
        found.append(ScoredShard.open(out, "perplexity").component("surprisal"))
    return found, TrigramModels.open(model)


def test_documents_are_scored_by_a_model_that_did_not_see_them(tmp_path):
    # No two documents share ids: a model trained on a document predicts it well, the other one not at all.
    documents = [[[k, k, k, k, k, k] for k in range(first, first + 30)] for first in (0, 30)]
    scores, models = scored(tmp_path, documents)
    assert sum(models.manifest.num_documents) == 60
    assert min(models.manifest.num_documents) > 10
    seen = [
        surprisal(model, [document for shard in documents for document in shard]) for model in models.models
    ]
    for score, *by_model in zip(np.concatenate(scores).tolist(), *seen, strict=True):
        assert score == pytest.approx(max(by_model))
        assert min(by_model) < 2 < 4 < max(by_model)


def test_a_model_is_trained_on_a_sample_of_a_large_corpus(tmp_path):
    documents = [[[(k * 7 + i) % 50 for i in range(20)] for k in range(400)]]
    _, models = scored(tmp_path, documents, train_tokens=800)
    assert all(500 < tokens < 1200 for tokens in models.manifest.num_tokens)


def column_scores(tmp_path, content, name="part.jsonl", column="grade"):
    """Encode a file's documents of at least two tokens, and read a column for them; all shards together."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    found = ingested(tmp_path, {"a": {"files": [name]}})
    published = tmp_path / "tokenizer"
    published.mkdir()
    publish_tokenizer(of_bytes(), published, exports=False)
    values = []
    for index, shard in enumerate(found.corpus.shards("a")):
        text = {"shard": shard.model_dump(mode="json"), "roots": found.roots}
        encoded, out = tmp_path / f"encoded-{index}", tmp_path / f"scores-{index}"
        made(ENCODE_SHARD, EncodeParams(min_tokens=2), encoded, tokenizer=published, shard=text)
        made(SCORE_COLUMN, ColumnParams(column=column), out, text=text, shard=encoded)
        values += ScoredShard.open(out, f"column:{column}").component("value").tolist()
    return values


def json_lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_column_is_read_for_the_documents_that_were_kept(tmp_path):
    rows = [
        {"text": "first one", "grade": 3},
        {"text": "x", "grade": 99},  # one token: dropped when it was encoded
        {"text": "second", "grade": -0.5},
        {"text": "third", "grade": None},
        {"text": "fourth", "grade": "2e3"},
        {"text": "fifth"},
    ]
    values = column_scores(tmp_path, json_lines(*rows))
    assert values == pytest.approx([3, -0.5, math.nan, 2000, math.nan], nan_ok=True)


def test_a_column_is_read_over_all_shards_of_a_source(tmp_path):
    rows = [{"text": f"{k} " * 60, "grade": k} for k in range(900)]
    assert column_scores(tmp_path, json_lines(*rows)) == list(range(900))


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (
            json_lines({"text": "some text", "grade": "high"}),
            "part.jsonl",
            r"part\.jsonl.* holds 'high', which is not a number",
        ),
        (json_lines({"text": "some text", "grades": 1}), "part.jsonl", "no document of shard 0 has a value"),
        (
            "text,note\nsome text,1\n",
            "part.csv",
            "column 'grade' of source 'a' cannot be read: .*'grade' is not among",
        ),
        ("some text\n", "part.txt", "is read as text, which has no columns"),
    ],
)
def test_columns_without_numbers_are_refused(tmp_path, content, name, message):
    with pytest.raises(SourceError, match=message):
        column_scores(tmp_path, content, name)


def test_the_noise_stage_knows_the_end_token_by_its_name(tmp_path):
    published = tmp_path / "tokenizer"
    published.mkdir()
    publish_tokenizer(of_bytes(), published, exports=False)
    corpus = encoded_corpus(tmp_path, {"a": [[[*of_bytes().encode("ab, c!"), END]]]}, vocab_size=257)
    out = tmp_path / "out"
    outcome = made(SCORE_NOISE, NoiseParams(), out, tokenizer=published, shard=corpus.shards[0])
    assert ScoredShard.open(out, "noise").component("symbols").tolist() == pytest.approx([2 / 6])
    assert outcome.metrics == {"measure": "noise", "num_documents": 1, "num_missing": 0}


def test_scores_of_another_measure_or_shard_are_refused(tmp_path):
    (tmp_path / "scores").mkdir()
    write_scores(tmp_path / "scores", "perplexity", {"surprisal": np.zeros(3, dtype=np.float32)})
    with pytest.raises(StoreError, match="holds scores of 'perplexity', and 'noise' is needed"):
        ScoredShard.open(tmp_path / "scores", "noise")
    scores = {"perplexity": {"a": [[1.0, 2.0]]}}
    with pytest.raises(
        StoreError, match="'perplexity' has 2 numbers for shard 0 of 'a', which has 3 documents"
    ):
        Planned({"a": [[1, 1, 1]]}, scores=scores, curriculum={"difficulty": "perplexity"})
