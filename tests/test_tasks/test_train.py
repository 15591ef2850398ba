"""train and adopt: what is published loads back alike, and equals training from the same texts."""

from types import SimpleNamespace

import orjson
import pytest

import tokenizer
from tasks.adopt import AdoptParams
from tasks.adopt import run as adopt
from tasks.balance import BalanceParams
from tasks.balance import run as balance
from tasks.count import CountParams
from tasks.count import run as count
from tasks.count import run_shard as count_shard
from tasks.errors import StoreError
from tasks.formats.tokenizer import open_tokenizer
from tasks.train import TrainParams
from tasks.train import run as train
from tokenizer.errors import FormatError, TokenizerError, TrainingError

DOCUMENTS = {
    "en": ["the theory of the thing", "this and that", "don't <|endoftext|> go there, then: 1234"],
    "ru": ["на пороге стояла кошка", "кошка и кот на крыше"],
}
SMALL = TrainParams(vocab_size=300)


def counted(corpus, params, folder):
    """Count and balance into plain directories."""
    shards = []
    for index, value in enumerate(corpus.shard_values):
        shards.append(folder / f"shard-{index}")
        shards[-1].mkdir(parents=True)
        count_shard(params, out=shards[-1], shard=value)
    for name in ("counts", "balance"):
        (folder / name).mkdir()
    count(params, out=folder / "counts", corpus=corpus.path, shards=shards)
    balance(BalanceParams(), out=folder / "balance", corpus=corpus.path)
    return {"counts": folder / "counts", "balance": folder / "balance"}


@pytest.fixture
def trained(tmp_path, text_corpus):
    """Train on DOCUMENTS: where the artifact lies, and what the stage said of it."""

    def make(params=SMALL, documents=DOCUMENTS, name="tokenizer"):
        inputs = counted(text_corpus(documents, name), params.count_params(), tmp_path / name / "work")
        out = tmp_path / name / "artifact"
        out.mkdir()
        return SimpleNamespace(path=out, outcome=train(params, out=out, **inputs))

    return make


def test_training_from_the_stages_equals_training_from_the_texts(trained):
    texts = [text for texts in DOCUMENTS.values() for text in texts]
    expected = tokenizer.train(texts, vocab_size=300, special_tokens=["<|endoftext|>"])
    made = trained()
    assert open_tokenizer(made.path) == expected
    assert made.outcome.metrics["num_merges"] == len(expected.merges) == 300 - 257
    assert made.outcome.metrics["exports"] == "huggingface, gpt2, tiktoken"


@pytest.mark.parametrize("export", ["huggingface", "gpt2", "tiktoken"])
def test_every_export_encodes_alike(trained, export):
    made = trained()
    original = open_tokenizer(made.path)
    loaded = tokenizer.load(made.path / "exports" / export)
    for text in ("the кот, 99 <|endoftext|>", "", "猫\n\n  🐈"):
        assert loaded.encode(text, allowed_special="all") == original.encode(text, allowed_special="all")
    files = orjson.loads((made.path / "exports.json").read_bytes())[export]["files"]
    assert all((made.path / file).is_file() for file in files)


def test_the_same_text_gives_the_same_files(trained):
    one, two = trained(name="one").path, trained(name="two").path
    files = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    for file in files:
        assert (one / file).read_bytes() == (two / file).read_bytes(), file


def test_counts_that_were_cut_otherwise_are_refused(tmp_path, text_corpus):
    inputs = counted(text_corpus(DOCUMENTS), CountParams(), tmp_path / "work")
    with pytest.raises(TrainingError, match="split_pattern='cl100k', but the text was counted with 'gpt2'"):
        train(TrainParams(vocab_size=300, split_pattern="cl100k"), out=tmp_path, **inputs)


def test_too_little_text_is_said(trained):
    with pytest.raises(TrainingError, match="vocab_size=32000"):
        trained(TrainParams())


def test_special_tokens_may_come_in_any_order(trained):
    params = TrainParams(vocab_size=300, special_tokens=("<b>", "<a>"), num_reserved=2)
    made = trained(params)
    names = list(open_tokenizer(made.path).special_tokens)
    assert names == ["<b>", "<a>", "<|reserved_0|>", "<|reserved_1|>"]


def test_a_tokenizer_that_does_something_else_is_not_opened(trained):
    path = trained().path
    other = tokenizer.train(["zz zz zz"], vocab_size=258, special_tokens=["<|endoftext|>"])
    other.save(path)
    with pytest.raises(TokenizerError):
        open_tokenizer(path)


def test_a_tokenizer_without_attestation_is_not_opened(trained):
    path = trained().path
    (path / "attestation.json").unlink()
    with pytest.raises(StoreError, match=r"attestation\.json"):
        open_tokenizer(path)


@pytest.mark.parametrize("export", ["huggingface", "gpt2", "tiktoken"])
def test_adopting_an_export_gives_the_tokenizer_back(tmp_path, trained, export):
    made = trained()
    out = tmp_path / "adopted"
    out.mkdir()
    outcome = adopt(AdoptParams(), out=out, file=made.path / "exports" / export)
    assert open_tokenizer(out).vocab == open_tokenizer(made.path).vocab
    assert open_tokenizer(out).merges == open_tokenizer(made.path).merges
    assert outcome.metrics["vocab_size"] == 300


def test_ranks_alone_need_a_pattern_and_take_special_tokens(tmp_path, trained):
    made = trained()
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_bytes(next((made.path / "exports" / "tiktoken").glob("*.tiktoken")).read_bytes())
    out = tmp_path / "adopted"
    out.mkdir()
    with pytest.raises(FormatError, match="split_pattern"):
        adopt(AdoptParams(), out=out, file=ranks)
    adopt(AdoptParams(split_pattern="gpt2", special_tokens={"<|endoftext|>": 299}), out=out, file=ranks)
    assert open_tokenizer(out).spec() == open_tokenizer(made.path).spec()


def test_a_folder_of_several_formats_gives_the_one_that_is_asked_for(tmp_path, trained):
    exports = trained().path / "exports"
    with pytest.raises(FormatError, match=r"format='tiktoken' means one file \*\.tiktoken"):
        adopt(AdoptParams(format="tiktoken"), out=tmp_path, file=exports / "gpt2")
