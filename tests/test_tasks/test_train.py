"""train and adopt: published tokenizers load unchanged, and equal those trained directly from the texts."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import orjson
import pytest

from tests.test_tokenizer.conftest import like_rwkv, trained_by_sentencepiece
from tests.test_tokenizer.gguf_files import MODELS, small_file, write_gguf
from tokmill import tokenizer
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.balance.stage import run as balance
from tokmill.tasks.core.stage import Request
from tokmill.tasks.count.stage import run as count
from tokmill.tasks.count.stage import run_shard as count_shard
from tokmill.tasks.formats.tokenizer import _sharing, open_tokenizer
from tokmill.tasks.store.fingerprint import fingerprint_payload, plain
from tokmill.tasks.train.adopt import AdoptParams
from tokmill.tasks.train.adopt import run as adopt
from tokmill.tasks.train.stage import TRAIN, TrainParams
from tokmill.tasks.train.stage import run as train
from tokmill.tokenizer.core.errors import FormatError, TokenizerError
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family

DOCUMENTS = {
    "en": ["the theory of the thing", "this and that", "don't <|endoftext|> go there, then: 1234"],
    "ru": ["на пороге стояла кошка", "кошка и кот на крыше"],
}
SMALL = TrainParams(vocab_size=300)


def counted(corpus, params, work, balancing=None):
    """Count and balance into plain directories."""
    shards = []
    for index, value in enumerate(corpus.shard_values):
        shards.append(folder(work, f"shard-{index}"))
        count_shard(params, out=shards[-1], shard=value)
    count(params, out=folder(work, "counts"), corpus=corpus.path, shards=shards)
    balance(balancing or BalanceParams(), out=folder(work, "balance"), corpus=corpus.path)
    return {"counts": work / "counts", "balance": work / "balance"}


def folder(*parts):
    """A new folder."""
    path = Path(*parts)
    path.mkdir(parents=True)
    return path


@pytest.fixture
def trained(tmp_path, text_corpus):
    """Train on DOCUMENTS; return the artifact's folder and the stage's outcome."""

    def make(params=SMALL, documents=DOCUMENTS, name="tokenizer", balancing=None):
        corpus = text_corpus(documents, name)
        inputs = counted(corpus, params.count_params(), tmp_path / name / "work", balancing)
        out = folder(tmp_path, name, "artifact")
        return SimpleNamespace(path=out, outcome=train(params, out=out, **inputs))

    return make


def test_training_from_the_stages_equals_training_from_the_texts(trained):
    texts = [text for texts in DOCUMENTS.values() for text in texts]
    expected = tokenizer.train(texts, vocab_size=300, special_tokens=["<|endoftext|>"])
    made = trained()
    assert open_tokenizer(made.path) == expected
    assert made.outcome.metrics["num_merges"] == len(expected.merges) == 300 - 257
    assert made.outcome.metrics["exports"] == "huggingface, gpt2, tiktoken"


@pytest.mark.parametrize("family", ["char_bpe", "unigram"])
def test_training_on_sentences_by_stages_equals_training_from_the_texts(trained, family):
    options = {"family": family, "mode": "sentencepiece", "normalizer": "nfkc", "vocab_size": 60}
    options |= {"allow_smaller": True, "user_defined_symbols": ("the",), "special_tokens": ("<|endoftext|>",)}
    made = trained(TrainParams(**options))

    expected = tokenizer.train([text for texts in DOCUMENTS.values() for text in texts], **options)
    assert open_tokenizer(made.path) == expected
    assert tokenizer.load(made.path / "exports" / "sentencepiece") == expected
    assert made.outcome.metrics["exports"].endswith("sentencepiece")


def test_settings_of_sentences_are_in_the_fingerprints_of_that_mode_alone():
    of_sentences = TrainParams(split_digits=True, bos_id=-1, normalization_rules={"a": "b"})
    assert plain(of_sentences) == plain(TrainParams())
    on_sentences = TrainParams(family="char_bpe", mode="sentencepiece", split_digits=True)
    assert plain(on_sentences)["split_digits"] is True
    assert "split_pattern" not in plain(on_sentences)
    counting = on_sentences.count_params(), TrainParams(family="unigram", mode="sentencepiece").count_params()
    assert plain(counting[0]) == plain(counting[1])
    assert plain(TrainParams(byte_fallback=True)) == plain(TrainParams()) | {"byte_fallback": True}


def test_a_unigram_tokenizer_has_as_many_pieces_as_asked(trained):
    params = TrainParams(vocab_size=34, family="unigram", character_coverage=0.9)
    weighted = trained(params, balancing=BalanceParams(weights={"en": 1, "ru": 1.5}))
    assert weighted.outcome.metrics["num_pieces"] == 32
    assert open_tokenizer(weighted.path).vocab_size == 34


def test_the_revision_of_a_family_is_in_its_own_fingerprints_alone():
    params = {family: TrainParams(vocab_size=400, family=family) for family in FAMILIES}
    payloads = {name: fingerprint_payload(Request(TRAIN, "own", its, {})) for name, its in params.items()}
    versions = {name: payload["version"] for name, payload in payloads.items()}
    assert versions["byte_bpe"] == TRAIN.version
    assert all(versions[name] == TRAIN.version + find_family(name).revision for name in FAMILIES)
    assert versions["unigram"] > TRAIN.version


def test_settings_of_special_tokens_are_in_fingerprints_where_they_are_set():
    added = {"special_sets", "roles", "chat_template", "template", "pair_template", "pad_to_multiple_of"}
    assert not added & plain(TrainParams()).keys()
    every = TrainParams(
        special_sets=["chat"],
        roles={"eos": "<|im_end|>"},
        chat_template="{{ x }}",
        template="$A <|im_end|>",
        pair_template="$A $B",
        pad_to_multiple_of=64,
    )
    assert added < plain(every).keys()
    assert every.special_tokens == ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    assert every.count_params().special_tokens == tuple(sorted(every.special_tokens))
    assert TrainParams(**every.model_dump()) == every


def test_an_artifact_has_roles_a_chat_template_and_a_padded_vocabulary(trained):
    special = {"special_sets": ["chat"], "roles": {"eos": "<|im_end|>"}, "chat_template": "{{ x }}"}
    made = trained(TrainParams(vocab_size=300, pad_to_multiple_of=64, **special))
    tok = open_tokenizer(made.path)
    assert (tok.vocab_size, made.outcome.metrics["vocab_size"]) == (320, 320)
    assert tok.roles["eos"] == "<|im_end|>"
    exported = made.path / "exports" / "huggingface"
    assert (exported / "chat_template.jinja").read_text() == "{{ x }}"
    assert tokenizer.load(exported).roles == tok.roles


def exports_of(folder):
    """What exports.json of an artifact says of each format: "files", or the reason."""
    listed = orjson.loads((folder / "exports.json").read_bytes())
    return {name: "files" if "files" in result else result["not_possible"] for name, result in listed.items()}


def test_formats_of_a_family_are_exported_where_they_can_express_the_tokenizer(trained):
    bert = {
        "split_pattern": "bert",
        "normalizer": "bert_clean+lowercase",
        "special_tokens": ["[CLS]", "[SEP]"],
    }
    params = TrainParams(vocab_size=60, family="wordpiece", **bert)
    found = exports_of(trained(params).path)
    assert (found["huggingface"], found["bert"]) == ("files", "files")
    assert "cannot express a wordpiece" in found["gpt2"]
    listed = orjson.loads((trained(params, name="again").path / "exports.json").read_bytes())
    assert "[CLS] A [SEP]" in listed["bert"]["differs"]  # as every vocab.txt with these two tokens is read
    other = exports_of(trained(TrainParams(vocab_size=60, family="wordpiece"), name="other").path)
    assert other["huggingface"] == "files"
    assert "vocab.txt" in other["bert"]
    assert [*exports_of(trained(name="bytes").path)] == ["huggingface", "gpt2", "tiktoken"]


def test_a_sentencepiece_model_is_adopted_with_its_roles_and_exported_as_one(tmp_path):
    pieces = {"bos_piece": "[A]", "eos_piece": "[Z]"}
    model = tmp_path / "own.model"
    model.write_bytes(trained_by_sentencepiece(vocab_size=300, **pieces))
    outcome = adopt(AdoptParams(), out=tmp_path / "adopted", file=model)
    assert outcome.metrics["exports"] == "sentencepiece"
    exported = tokenizer.load(tmp_path / "adopted" / "exports" / "sentencepiece")
    assert (exported.roles["bos"], exported.roles["eos"]) == ("[A]", "[Z]")
    assert exported.spec() == tokenizer.load(tmp_path / "adopted" / "tokmill.json").spec()


def zipf_text(letters, num_words, seed):
    """Documents of made-up words; the k-th word is about k times rarer than the first."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(list(letters), random.integers(2, 9))) for _ in range(3000)]
    drawn = np.minimum(random.zipf(1.25, num_words) - 1, len(words) - 1)
    return [" ".join(words[k] for k in part) for part in np.array_split(drawn, num_words // 20)]


SPREAD = {
    "huge": zipf_text("abcdefghij", 40_000, 1),
    "rus": zipf_text("абвгдежзик", 4_000, 2),
    "deu": zipf_text("klmnopqrst", 4_000, 3),
}
"""Sources of which the largest gets next to nothing: 2 : 50 : 48 of a corpus in which it is six sevenths."""
RULE = BalanceParams(weights={"huge": 2, "rus": 50, "deu": 48}, max_repetition=None)
WIDER = TrainParams(vocab_size=1500)


def test_whole_weights_train_as_a_repeated_corpus_does(trained):
    sizes = {source: sum(len(text.encode()) for text in texts) for source, texts in DOCUMENTS.items()}
    times = {"en": 3, "ru": 7}
    weights = {source: times[source] * sizes[source] for source in times}
    rule = BalanceParams(weights=weights, total=sum(weights.values()))
    repeated = {source: texts * times[source] for source, texts in DOCUMENTS.items()}
    for least in (1, 5):
        params = SMALL.model_copy(update={"vocab_size": 270, "min_frequency": least})
        weighted = trained(params, balancing=rule, name=f"weighted-{least}")
        physical = trained(params, documents=repeated, name=f"repeated-{least}")
        assert open_tokenizer(weighted.path) == open_tokenizer(physical.path)
        names = ("num_weighted_pretokens", "share.en", "share.ru")
        assert [weighted.outcome.metrics[n] for n in names] == [physical.outcome.metrics[n] for n in names]


@pytest.mark.parametrize("total", [None, 20_000, 3_000_000])
def test_training_counts_every_source_for_its_share(trained, total):
    rule = RULE.model_copy(update={"total": total})
    metrics = trained(WIDER, documents=SPREAD, balancing=rule).outcome.metrics
    for source, share in RULE.weights.items():
        # newlines are not pre-tokens
        assert metrics[f"share.{source}"] == pytest.approx(share / 100, abs=0.01)


@pytest.mark.parametrize("export", ["huggingface", "gpt2", "tiktoken"])
def test_every_export_is_adopted_and_encodes_alike(tmp_path, trained, export):
    made = trained()
    original = open_tokenizer(made.path)
    outcome = adopt(AdoptParams(), out=folder(tmp_path, "adopted"), file=made.path / "exports" / export)
    loaded = open_tokenizer(tmp_path / "adopted")
    assert (loaded.vocab, loaded.merges) == (original.vocab, original.merges)
    assert outcome.metrics["vocab_size"] == 300
    for text in ("the кот, 99 <|endoftext|>", "", "猫\n\n  🐈"):
        assert loaded.encode(text, allowed_special="all") == original.encode(text, allowed_special="all")
    files = orjson.loads((made.path / "exports.json").read_bytes())[export]["files"]
    assert all((made.path / file).is_file() for file in files)


def test_pretokens_are_first_seen_in_the_order_of_their_bytes(trained):
    params = SMALL.model_copy(update={"tie_break": "first_seen"})
    texts = [text for texts in DOCUMENTS.values() for text in texts]
    words = tokenizer.count_pretokens(texts, special_tokens=["<|endoftext|>"]).to_dict()
    options = {"vocab_size": 300, "special_tokens": ["<|endoftext|>"], "tie_break": "first_seen"}
    expected = tokenizer.train_from_counts(dict(sorted(words.items())), **options)
    made = open_tokenizer(trained(params).path)
    backwards = {source: DOCUMENTS[source][::-1] for source in reversed(DOCUMENTS)}
    assert made == open_tokenizer(trained(params, backwards, "backwards").path) == expected
    assert made != open_tokenizer(trained(SMALL, name="by_bytes").path)


def test_a_tokenizer_that_fails_its_probes_is_not_opened(trained):
    path = trained().path
    other = tokenizer.train(["zz zz zz"], vocab_size=258, special_tokens=["<|endoftext|>"])
    other.save(path)
    with pytest.raises(TokenizerError):
        open_tokenizer(path)


def test_a_tokenizer_is_checked_again_once_its_files_have_changed(trained):
    path = trained().path
    open_tokenizer(path)
    attestation = path / "attestation.json"
    attestation.write_bytes(attestation.read_bytes().replace(b"quick brown", b"quiet brown"))
    with pytest.raises(TokenizerError):
        open_tokenizer(path)


def test_ranks_alone_need_a_pattern_and_take_special_tokens(tmp_path, trained):
    made = trained()
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_bytes(next((made.path / "exports" / "tiktoken").glob("*.tiktoken")).read_bytes())
    out = folder(tmp_path, "adopted")
    with pytest.raises(FormatError, match="split_pattern"):
        adopt(AdoptParams(), out=out, file=ranks)
    adopt(AdoptParams(split_pattern="o200k", special_tokens={"<|endoftext|>": 299}), out=out, file=ranks)
    spec, adopted = open_tokenizer(made.path).spec(), open_tokenizer(out)
    assert spec.pop("unicode") == adopted.splitter.unicode  # which ranks alone do not contain
    assert adopted.spec() == spec


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
    outcome = adopt(AdoptParams(format="gguf"), out=folder(tmp_path, "out"), file=tmp_path)
    assert outcome.metrics["vocab_size"] == tokenizer.load(path).vocab_size
    assert open_tokenizer(tmp_path / "out").spec() == tokenizer.load(path).spec()
    exports = exports_of(tmp_path / "out")
    assert {kind for kind, how in exports.items() if how == "files"} >= EXPORTS[name]
    assert "gguf" not in exports


def test_rwkvs_vocabulary_is_adopted(tmp_path: Path) -> None:
    like_rwkv().save(tmp_path / "in", "rwkv")
    outcome = adopt(AdoptParams(format="rwkv"), out=folder(tmp_path, "out"), file=tmp_path / "in")
    assert outcome.metrics["exports"] == "rwkv"
    assert open_tokenizer(tmp_path / "out").spec() == like_rwkv().spec()


def test_settings_of_unigram_are_in_no_other_familys_fingerprint():
    others = TrainParams(vocab_size=300), TrainParams(vocab_size=300, seed_size=9, character_coverage=0.5)
    unigram = [TrainParams(vocab_size=300, family="unigram", seed_size=size) for size in (9, 10)]
    assert plain(others[0]) == plain(others[1])
    assert "seed_size" not in plain(others[0])
    assert [plain(params)["seed_size"] for params in unigram] == [9, 10]
    assert "seed_size" in TrainParams.without_effect({"seed_size": 9})
    assert "seed_size" not in TrainParams.without_effect({"seed_size": 9, "family": "unigram"})


def test_tables_are_shared_with_equal_models_alone() -> None:
    tok = tokenizer.train(["the fox the dog " * 20], vocab_size=30, family="unigram", allow_smaller=True)
    model = tok.definition.model
    for other in (replace(model, scores=model.scores.copy()), replace(model, scores=model.scores - 1.0)):
        shared = _sharing(tokenizer.Tokenizer(replace(tok.definition, model=other)), tok).definition.model
        assert (shared is model) == np.array_equal(other.scores, model.scores)
