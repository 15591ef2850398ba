"""Single stages on columns: the artifacts of a run over files with the same texts, to the byte."""

import asyncio
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from inspect import signature
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import tokmill
from tests.test_flows.commands import clean_environment
from tests.test_flows.corpora import words
from tokmill.flows.commands.main import main
from tokmill.flows.errors import ProfileError, RunError, UsageError
from tokmill.flows.library import options
from tokmill.flows.library.encoding import EncodedColumn
from tokmill.flows.library.options import Settings
from tokmill.flows.library.training import TrainedTokenizer
from tokmill.flows.profile import Profile
from tokmill.flows.profile.model import Auditing
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.core.errors import GateError
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.holdout.stage import HoldoutParams
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.packing.params import PackParams
from tokmill.tasks.store.removal import leftovers
from tokmill.tasks.train.stage import TrainParams

TRAIN = {"vocab_size": 400, "split_pattern": "o200k"}
BALANCE = {"temperature": 2.0}
MIX = {"weights": {"web": 1.0, "code": 2.0}, "max_repetition": 4.0, "seed": 7}
PACK = {"sequence_length": 64, "strategy": "best_fit"}


def texts(seed: int, number: int) -> list[str]:
    """Documents of made-up words."""
    generator = random.Random(seed)
    return [words(generator, generator.randint(5, 60)) for _ in range(number)]


TEXTS = {"web": texts(1, 300), "code": texts(2, 120)}


@pytest.fixture(scope="module")
def tok() -> TrainedTokenizer:
    """A tokenizer that was trained on columns, without a store."""
    return tokmill.train(TEXTS, **TRAIN, **BALANCE)


@pytest.fixture(scope="module")
def encoded(tok: TrainedTokenizer) -> Mapping[str, EncodedColumn]:
    """The columns, encoded."""
    found: Mapping[str, EncodedColumn] = tokmill.encode(tok, TEXTS)
    return found


def test_every_stage_makes_what_a_run_over_files_makes_also_of_columns_encoded_apart(
    tok: TrainedTokenizer, encoded: Mapping[str, EncodedColumn], tmp_path: Path
) -> None:
    sources = {}
    for source, column in TEXTS.items():
        path = tmp_path / f"{source}.jsonl"
        path.write_text("".join(f"{json.dumps({'text': text})}\n" for text in column), "utf-8")
        sources[source] = {"files": [str(path)]}
    table = {"name": "own", "sources": sources, "train": TRAIN, "balance": BALANCE, "mix": MIX, "pack": PACK}
    of_files = tokmill.run(table, store=tmp_path / "store", prefect=False).artifacts
    frames = {"web": pd.Series(TEXTS["web"]), "code": pa.array(TEXTS["code"])}
    audit, mixture = tokmill.audit(tok, frames), tokmill.mix(encoded, **MIX)
    packed = tokmill.pack(mixture, **PACK)
    apart = {source: tokmill.encode(tok, column) for source, column in TEXTS.items()}
    for kind, made in (
        ("tokenizer", tok),
        ("audit", audit),
        ("encoded", encoded["web"]),
        ("mixture", mixture),
        ("mixture", tokmill.mix(apart, **MIX)),
        ("packed", packed),
    ):
        assert made.artifact is not None
        assert made.artifact.ref.content_digest == of_files[kind].ref.content_digest, kind


def test_a_row_has_the_ids_of_the_tokenizer_and_the_end_of_the_document(tok: TrainedTokenizer) -> None:
    column = ["first", "", "second second", "x<|endoftext|>y"]
    end = tok.special_tokens["<|endoftext|>"]
    ids = tokmill.encode(tok, pd.Series(column, index=[5, 5, 1, 0]))
    rows = [[*tok.encode(text, as_text=True), end] if text else [] for text in column]
    assert [ids[row].tolist() for row in range(len(ids))] == rows
    assert ids.offsets.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert ids.arrow().to_pylist() == [row or None for row in rows]
    assert ids.arrow().type == pa.large_list(pa.uint16())
    assert [None if row is None else row.tolist() for row in ids.to_pandas()] == [row or None for row in rows]
    assert [row.tolist() for row in ids[-1:-9:-2]] == rows[-1:-9:-2]
    with pytest.raises(IndexError, match="there is no row 4; the column has 4"):
        ids[4]
    assert (ids.num_tokens, ids.figures["num_dropped_documents"]) == (sum(map(len, rows)), 1)

    with pytest.raises(UsageError, match="row 1 is null"):
        tokmill.encode(tok, ["a", None, "b"])
    ids = tokmill.encode(tok, ["a", None, "b"], on_error="quarantine", end_of_document=None)
    assert ids.arrow().to_pylist() == [tok.encode("a"), None, tok.encode("b")]  # each in its place


def test_arrays_are_those_of_the_packed_sequences(
    encoded: Mapping[str, EncodedColumn], tmp_path: Path
) -> None:
    packed = tokmill.pack(encoded["web"], sequence_length=48, strategy="greedy", into=tmp_path / "packed")
    arrays = packed.arrays()
    assert arrays["input_ids"].shape == (len(packed), 48)
    for index, sequence in enumerate(packed.reader):
        for name in ("input_ids", "segment_ids", "position_ids", "loss_mask"):
            assert np.array_equal(arrays[name][index], getattr(sequence, name)), (index, name)
    bounds, some = arrays["cu_seqlens"], packed.arrays(["input_ids"], first=2, stop=4)
    assert (bounds[0], bounds[-1]) == (0, arrays["input_ids"].size)
    assert np.array_equal(some["input_ids"], arrays["input_ids"][2:4])
    assert len(tokmill.PackedReader.open(tmp_path / "packed")) == len(packed)
    with pytest.raises(UsageError, match="not an empty folder"):
        packed.save(tmp_path / "packed")


def test_with_a_store_everything_is_published_there_and_found_again(tmp_path: Path) -> None:
    store = tokmill.Store(tmp_path / "store")
    tok = tokmill.train(TEXTS["web"], vocab_size=300, store=store, name="news")
    packed = tokmill.pack(tokmill.encode(tok), sequence_length=64)
    again = tokmill.train(np.array(TEXTS["web"]), vocab_size=300, store=store, name="news")
    assert again.artifact == tok.artifact is not None
    assert store.find("tokenizer/news").open() == tok
    assert store.find("packed/news@v1").open().path == packed.path
    assert set(store.artifacts().arrow()["name"].to_pylist()) >= {"news"}
    assert store.runs()["state"] == ["completed"] * 4
    assert not store.verify()


def test_old_columns_that_no_artifact_is_made_from_are_garbage(tmp_path: Path) -> None:
    store = tokmill.Store(tmp_path / "store")
    tokmill.train(TEXTS["web"], vocab_size=300, store=store)
    with pytest.raises(RunError, match="vocab_size"):
        tokmill.train(["too little"], vocab_size=3000, store=store)
    ingested = store.find("corpus/notebook@v2")
    (other,) = (Path(entry.origin or "") for entry in ingested.record.inputs)
    for file in store.layout.texts.iterdir():
        os.utime(file, (0, 0))
    assert [*leftovers(store.layout, (), 0)] == []
    after = [one.path for one in leftovers(store.layout, {ingested.ref.fingerprint}, 0)]
    assert after == [other]


def test_a_tokenizer_of_any_origin_is_used_also_in_an_event_loop_and_in_threads(
    tok: TrainedTokenizer, tmp_path: Path
) -> None:
    plain = tokmill.tokenizer.train(TEXTS["web"], vocab_size=300, special_tokens=["<|endoftext|>"])
    plain.save(tmp_path / "plain")
    by_object, by_path = (tokmill.encode(each, ["some text"]) for each in (plain, tmp_path / "plain"))
    assert by_object[0].tolist() == by_path[0].tolist()
    assert tokmill.audit(plain, TEXTS["code"]).figures["num_tokens"] > 0
    assert pickle.loads(pickle.dumps(tok)) == tok
    assert tok.with_roles(eos="<|endoftext|>").artifact is None
    other = tokmill.train(TEXTS["web"], vocab_size=300, special_tokens=["<eos>"])
    with pytest.raises(ProfileError, match=r"encode\.end_of_document"):
        tokmill.encode(other)
    assert tokmill.encode(other, end_of_document="<eos>")[0][-1] == other.special_tokens["<eos>"]
    bare = tokmill.encode(tokmill.train(TEXTS["web"], vocab_size=260, special_tokens=[]))
    assert tokmill.pack(bare, sequence_length=64).reader.manifest.end_of_document_id is None

    async def cell() -> int:
        return int(tokmill.encode(tok, ["in a loop"]).num_tokens)

    assert asyncio.run(cell()) == len(tok.encode("in a loop")) + 1
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: tokmill.encode(tok, [f"thread {number}"]), range(4)))
    assert [ids[0].tolist()[:-1] for ids in found] == [tok.encode(f"thread {n}") for n in range(4)]


REFUSED = {
    "temperature": lambda tok: tokmill.train(["a"], vocab_size=300, temprature=2),
    "balance.temperature": lambda tok: tokmill.train(["a"], vocab_size=300, temperature=-1),
    "vocab_size": lambda tok: tokmill.train(["a b"], vocab_size=3000),
    "texts": lambda tok: tokmill.audit(tokmill.tokenizer.train(["ab"], vocab_size=256)),
    "<eos>": lambda tok: tokmill.encode(tok, ["a"], end_of_document="<eos>"),
    "mix.weights.code": lambda tok: tokmill.mix(tokmill.encode(tok), weights={"web": 1}),
    "pass what tokmill.encode gives": lambda tok: tokmill.pack(["a", "b"], sequence_length=16),
    "list": lambda tok: tokmill.mix({"web": ["a"]}),
    "at least 8": lambda tok: tokmill.pack(tokmill.encode(tok), sequence_length=2),
    "source": lambda tok: tokmill.train({}, vocab_size=300),
    "is above 0.5": lambda tok: tokmill.audit(tok, TEXTS, max_fertility=0.5, on_failure="fail"),
    "different tokenizers": lambda tok: tokmill.mix(
        {"a": tokmill.encode(tok, ["a"]), "b": tokmill.encode(tokmill.train(["b"], vocab_size=257))}
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_cannot_be_is_refused_with_the_reason(says: str, tok: TrainedTokenizer) -> None:
    with pytest.raises((UsageError, ProfileError, RunError, GateError)) as told:
        REFUSED[says](tok)
    assert says in str(told.value)


TEMPORARY = """
import os, sys
import tokmill
tok = tokmill.train(["a b c"] * 9, vocab_size=259)
child = os.fork()
if not child:
    sys.exit(tokmill.encode(tok, ["a b"]).num_tokens - len(tok.encode("a b")) - 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert tok.artifact.path.is_dir()
print(tok.artifact.path)
assert not {"prefect", "polars", "IPython"} & set(sys.modules)
"""
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("duckdb", "pandas", "polars"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import pyarrow
import tokmill
tok = tokmill.train(["some text", "and more text"] * 9, vocab_size=262)
packed = tokmill.pack(tokmill.encode(tok), sequence_length=16)
print(next(iter(packed.dataset(batch_size=2)))["input_ids"].shape)
table = tokmill.Table(pyarrow.table({"a": [1]}))
for give in (lambda: packed.artifact.store.sql("FROM runs"), table.to_pandas, table.to_polars):
    try:
        give()
    except Exception as error:
        print(error)
"""


def printed(code: str, folder: Path) -> tuple[list[str], str]:
    """Run a program with a temporary folder of its own; return what it printed, and its errors."""
    environment = clean_environment(TMPDIR=str(folder), HOME=os.environ.get("HOME", ""))
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.mark.slow
def test_the_temporary_store_goes_with_its_process_but_not_with_its_children(tmp_path: Path) -> None:
    (path,), _ = printed(TEMPORARY, tmp_path)
    assert not Path(path).exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_without_other_libraries_everything_is_made_and_what_needs_one_says_so(tmp_path: Path) -> None:
    (shape, *said), errors = printed(WITHOUT, tmp_path)
    assert shape == "(2, 16)"
    assert [line.rpartition("pip install ")[2].split()[0] for line in said] == ["duckdb", "pandas", "polars"]
    assert errors.count("DuckDB is not installed") == 1


def test_special_tokens_are_those_that_encode_adds(tok: TrainedTokenizer, tmp_path: Path) -> None:
    encoded = tokmill.encode(tok)["web"]
    table = {
        "name": "own",
        "sources": {"a": {"files": [write_text(tmp_path)], "format": "jsonl"}},
        "train": {"vocab_size": 300, "special_tokens": ["<s>", "</s>"]},
        "encode": {"begin_of_document": "<s>", "end_of_document": "</s>"},
    }
    opened = tokmill.run(table, until="tokenizer", store=tmp_path / "store", prefect=False)[
        "tokenizer"
    ].open()
    for each in (tok, pickle.loads(pickle.dumps(tok))):
        batch = each.encode_batch(TEXTS["web"][:9], add_special_tokens=True)
        assert [batch[row].tolist() for row in range(9)] == [encoded[row].tolist() for row in range(9)]
    first, *_, last = opened.encode("text", add_special_tokens=True)
    assert [first, last] == [opened.special_tokens[name] for name in ("<s>", "</s>")]
    assert opened.encode("text")[-1] != last


def write_text(folder: Path) -> str:
    """Write a file of text; return its path."""
    lines = (json.dumps({"text": text}) for text in TEXTS["code"])
    (folder / "a.jsonl").write_text("\n".join(lines), "utf-8")
    return str(folder / "a.jsonl")


def test_a_holdout_is_kept_from_training_and_packed_apart() -> None:
    tok = tokmill.train(TEXTS, vocab_size=400, holdout=0.2)
    packed = tokmill.pack(tokmill.mix(tokmill.encode(tok)), sequence_length=64)
    validation = packed.validation()
    other = tokmill.encode(tok, TEXTS["web"], holdout={"num_documents": {"text": 7}})

    held_out = tokmill.audit(tok).sources.to_dicts()
    num_documents = sum(map(len, TEXTS.values()))
    num_held_out = next(row["num_documents"] for row in held_out if row["source"] == "*")
    assert num_documents * 0.1 < num_held_out < num_documents * 0.3
    assert len(validation) < len(packed) / 2
    assert other.figures["num_documents"] == len(TEXTS["web"]) - 7
    with pytest.raises(UsageError, match="has no holdout"):
        tokmill.pack(tokmill.encode(tok, ["one text"] * 9), sequence_length=8).validation()


def test_keywords_are_the_fields_of_the_sections() -> None:
    known = {
        options.TrainOptions: TrainParams.model_fields.keys() - {"vocab_size"},
        options.BalanceOptions: BalanceParams.model_fields.keys(),
        options.EncodeOptions: EncodeParams.model_fields.keys(),
        options.AuditOptions: Auditing.model_fields.keys(),
        options.MixOptions: MixParams.model_fields.keys(),
        options.PackOptions: PackParams.model_fields.keys() - {"sequence_length"},
        options.HoldoutOptions: HoldoutParams.model_fields.keys(),
        options.RunOptions: Profile.model_fields.keys() | Settings.__annotations__.keys(),
        options.DatasetOptions: signature(tokmill.PackedDataset).parameters.keys() - {"path"},
    }

    for keywords, names in known.items():
        assert keywords.__annotations__.keys() == names, f"{keywords} of flows/library/options.py"
    with pytest.raises(UsageError, match="vocabsize"):
        tokmill.pack({}, sequence_length=8, vocabsize=9)  # type: ignore[call-arg]


def test_defaults_and_the_version_are_the_same_everywhere(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "own.toml"), "--source", f"a={write_text(tmp_path)}"]) == 0
    drafted = tokmill.load_profile(tmp_path / "own.toml")
    alone = tokmill.tokenizer.train(["some text"], vocab_size=257)

    assert (drafted.train, drafted.encode, drafted.pack) == (TrainParams(), EncodeParams(), PackParams())
    assert alone.spec()["split_pattern"] == TrainParams().split_pattern == "o200k"
    assert tokmill.__version__ == version("tokmill")
