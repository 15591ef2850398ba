"""Documents that are held out: on one side only, for good, and in no count, mixture or training text."""

import json
import random
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokmill
from tests.test_flows.corpora import InProcess, words
from tests.test_tasks.test_document_kernels import mixed
from tokmill.flows.errors import ProfileError
from tokmill.tasks.core.errors import HoldoutError, MixingError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.formats.text.shards import draws_of, is_held_out
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.tracing import Origins
from tokmill.tasks.tracing.document import trace_document

PROFILE = """
name = "held"

[sources.big]
files = ["big/*.jsonl"]
id_column = "id"

[sources.small]
files = ["small/*.jsonl"]
on_error = "quarantine"

[ingest]
shard_bytes = 65536

[train]
vocab_size = 400
special_tokens = ["<|endoftext|>", "<|p|>", "<|s|>", "<|m|>"]

[encode]
fim_rate = 0.5
fim_tokens = ["<|p|>", "<|s|>", "<|m|>"]

[pack]
sequence_length = 64
strategy = "best_fit"
long_documents = "drop"

[holdout]
"""


def write_texts(file: Path, texts: Sequence[str]) -> None:
    """Write documents as JSON lines, with ids."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = (json.dumps({"id": f"{file.stem}-{row}", "text": text}) for row, text in enumerate(texts))
    file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


@cache  # most tests write the same
def made_up(number: int, seed: int) -> Sequence[str]:
    """Texts that are all different."""
    generator = random.Random(seed)
    return tuple(f"{index} {words(generator, generator.randint(3, 60))}" for index in range(number))


def write_sources(folder: Path) -> Path:
    """Two sources with 40 texts in common; the larger one has copies of its own texts, too."""
    texts = made_up(900, 1)
    write_texts(folder / "big/a.jsonl", texts)
    write_texts(folder / "big/b.jsonl", texts[::10])
    write_texts(folder / "small/c.jsonl", [*texts[:40], *made_up(160, 2)])
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The sources, for tests that change them or hold other documents out."""
    return write_sources(tmp_path)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> "Held":
    """A run that holds a fifth out."""
    return Held(write_sources(tmp_path_factory.mktemp("held")), "share = 0.2")


KINDS = ("packed", "validation")
ABSENT = {
    True: "it is held out of training; see packed/held.validation",
    False: "it is not held out, but for training; see packed/held",
}


class Held:
    """A run of a profile with `[holdout]`, and what became of its documents."""

    def __init__(self, folder: Path, holdout: str, until: Collection[str] = ()) -> None:
        self.folder = folder
        profile = folder / "held.toml"
        profile.write_text(PROFILE + holdout, encoding="utf-8")
        self.runs = InProcess.at(folder / "store")
        self.made = self.runs.run(profile, until=until)

    def path(self, kind: str) -> Path:
        return self.runs.store.path(self.made[kind])

    def held_out(self) -> dict[str, list[str]]:
        """By source, the texts that are held out, in order, as the corpus lists them."""
        return texts_of(self.path("ingested"), self.path("corpus"))

    def origins(self, kind: str) -> Origins:
        return Origins.of(self.runs.store, self.made[kind])


def texts_of(ingested: Path, part: Path) -> dict[str, list[str]]:
    """Look the held-out documents of a part up in their files."""
    corpus, listed = Corpus.open(ingested), pq.read_table(part / "held_out.parquet").to_pylist()
    folder, found = ingested.parents[2], {source: [] for source in corpus.sources}
    for row in listed:
        name, line = corpus.lookup(row["source"], row["shard"], row["ordinal"])
        file = folder / row["source"] / Path(name).name
        found[row["source"]].append(json.loads(file.read_text("utf-8").splitlines()[line])["text"])
    return found


def decoded(held: Held, kind: str) -> dict[str, list[str]]:
    """By source, the text of each document in packed sequences, sorted; pieces are put together."""
    tokenizer, reader = open_tokenizer(held.path("tokenizer")), PackedReader.open(held.path(kind))
    pieces: dict[tuple[str, int, int], list[tuple[int, list[int]]]] = {}
    for number in range(len(reader)):
        sequence = reader[number]
        for piece in reader.provenance(number):
            ids = sequence.input_ids[piece.start : piece.start + piece.length]
            key = (piece.source, piece.shard, piece.document)
            pieces.setdefault(key, []).append((piece.document_start, ids.tolist()))
    found: dict[str, list[str]] = {source: [] for source in reader.manifest.sources}
    end = tokenizer.special_tokens["<|endoftext|>"]
    for (source, *_), parts in pieces.items():
        ids = [token for _, part in sorted(parts) for token in part]
        assert ids[-1] == end
        found[source].append(tokenizer.decode(ids[:-1]))
    return {source: sorted(texts) for source, texts in found.items()}


def jsonl(folder: Path, source: str) -> list[str]:
    """All texts of a source."""
    lines = [
        line
        for file in sorted(folder.glob(f"{source}/*.jsonl"))
        for line in file.read_text("utf-8").splitlines()
    ]
    return [json.loads(line)["text"] for line in lines]


def test_every_document_is_on_one_side(held: Held) -> None:
    out = held.held_out()
    training, validation = held.origins("packed").corpus, held.origins("validation").corpus

    assert 150 < len(out["big"]) < 250
    assert 20 < len(out["small"]) < 60
    assert (training.part, validation.part, Corpus.open(held.path("ingested")).part) == (
        "training",
        "validation",
        None,
    )
    for source, texts in out.items():
        left = list((Counter(jsonl(held.folder, source)) - Counter(texts)).elements())
        for part, its in ((training, left), (validation, texts)):
            stats = part.source_stats(source)
            assert stats.num_documents == len(its)
            assert stats.num_bytes == sum(len(text.encode()) for text in its)
            assert stats.num_chars == sum(map(len, its))
            assert stats.num_words == sum(len(text.split()) for text in its)


def test_what_is_held_out_stays_so_whatever_copies_come(project: Path) -> None:
    shares = "share = {big = 0.05, small = 0.6}"
    before = Held(project, shares, ["corpus"])
    out, small = before.held_out(), set(jsonl(project, "small"))
    write_texts(project / "big/copies.jsonl", sorted(small))
    write_texts(project / "small/copies.jsonl", jsonl(project, "big")[:300])
    after = Held(project, shares)
    grown = after.held_out()
    for source in ("big", "small"):
        assert Counter(out[source]) <= Counter(grown[source])
        both = set(grown["big"]) | set(grown["small"])
        assert Counter(grown[source]) == Counter(text for text in jsonl(project, source) if text in both)
    # a copy in the source with the larger share takes documents of the other one out of training
    assert len(set(grown["big"]) - set(out["big"]) - small) > 50
    packed = decoded(after, "packed")
    assert not {text for text in grown["big"] if len(text) > 20} & {*packed["big"], *packed["small"]}


def test_a_run_that_goes_on_cannot_hold_out_what_it_has_read(project: Path) -> None:
    held = Held(project, "share = 0.2", ["packed"])
    profile = project / "held.toml"
    goes_on = '\n[replan]\npacked = "packed/held@v1"\nconsumed_tokens = 3000\n'
    profile.write_text(f"{PROFILE}share = 0.2{goes_on}", encoding="utf-8")
    assert held.runs.run(profile, until=["mixture"])["mixture"].name == "held"
    profile.write_text(f"{PROFILE}share = 0.3{goes_on}", encoding="utf-8")
    with pytest.raises(MixingError, match="were consumed from shard"):
        held.runs.run(profile)


def test_a_number_of_documents(project: Path) -> None:
    out = Held(project, "share = 0\nnum_documents = {big = 60}", ["corpus"]).held_out()
    number = len(out["big"])
    assert 60 <= number < 65  # copies are held out together
    assert number - max(Counter(out["big"]).values()) < 60
    assert set(out["small"]) <= set(out["big"])

    other = Held(project, "share = 0\nseed = 7\nnum_documents = {big = 60}", ["corpus"]).held_out()
    assert set(other["big"]) != set(out["big"])


def test_no_stage_of_training_reads_what_is_held_out(held: Held) -> None:
    out = held.held_out()
    store, origins = held.runs.store, held.origins("packed")

    counted = store.record(held.made["counts"]).metrics["num_documents"]
    assert counted == sum(len(jsonl(held.folder, source)) - len(texts) for source, texts in out.items())
    packed = decoded(held, "packed")
    for source, texts in out.items():
        assert not {text for text in texts if len(text) > 20} & set(packed[source])
    rows = enumerate(jsonl(held.folder, "small"))
    sides = {text in out["small"]: row for row, text in rows}
    for held_out, row in sides.items():
        documents = [trace_document(held.origins(kind), f"small:c.jsonl:{row}") for kind in KINDS]
        there, (absent,) = documents if held_out is False else documents[::-1]
        assert any(found.pieces for found in there) or not held_out
        assert absent.absent == ABSENT[held_out]
    # found by its id, too, though the shards of the training part leave it out
    number = next(row for row, text in enumerate(made_up(900, 1)) if text in out["big"])
    (traced,) = trace_document(origins, f"big:a-{number}")
    assert traced.absent == ABSENT[True]


def test_the_packing_and_the_card_account_for_both_sides(held: Held) -> None:
    every = {source: sorted(texts) for source, texts in held.held_out().items()}
    assert decoded(held, "validation") == every  # once and unchanged
    assert held.made["validation"].name == "held.validation"
    card = json.loads((held.path("card") / "card.json").read_text("utf-8"))
    out = held.held_out()

    sources = {one["source"]: one for one in card["validation"]["sources"]}
    assert {source: one["num_documents"] for source, one in sources.items()} == {
        source: len(texts) for source, texts in out.items()
    }
    training, validation = card["ledgers"][0], card["validation"]["ledgers"][0]
    names = [column["name"] for column in training["columns"]]
    assert names[:3] == ["in", "read", "held_out"]
    assert training["rows"]["big"][names.index("held_out")] == len(out["big"])
    assert validation["rows"]["big"][-1] == len(out["big"])
    text = (held.path("card") / "card.md").read_text("utf-8")
    assert "## Held out for validation" in text


def test_without_holdout_nothing_is_different(held: Held) -> None:
    profile = held.folder / "plain.toml"
    profile.write_text(PROFILE.removesuffix("[holdout]\n"), encoding="utf-8")
    plain = held.runs.run(profile)

    assert plain["corpus"] == held.made["ingested"]
    assert "validation" not in plain
    card = json.loads((held.runs.store.path(plain["card"]) / "card.json").read_text("utf-8"))
    assert "validation" not in card


@pytest.mark.parametrize(
    ("holdout", "message"),
    [
        (
            "share = 0.001\nnum_documents = {small = 200}",
            "all 200 documents of source 'small' would be held out",
        ),
        ("share = 0", "no document of any source is held out"),
        ("share = {small = 0.3, big = 0.999999}", r"share\.big=0.999999: all 990 documents of source 'big'"),
        ("num_documents = {small = 1000}", r"num_documents\.small=1000: all 200 .* num_documents\.small = 0"),
        ("share = {smal = 0.1}", "did you mean 'small'"),
        ("num_documents = {bigg = 3}", "did you mean 'big'"),
        *((text, "holdout") for text in ("share = 1", "share = -0.1", "num_documents = {big=-1}", "seed=-1")),
    ],
)
def test_a_holdout_that_leaves_nothing_is_refused(project: Path, holdout: str, message: str) -> None:
    with pytest.raises((HoldoutError, ProfileError), match=message):
        Held(project, holdout)


def test_a_source_of_copies_of_what_another_holds_out_is_refused(project: Path) -> None:
    out = Held(project, "share = {big = 0.2}", ["corpus"]).held_out()["big"]
    write_texts(project / "small/c.jsonl", out[:2])
    with pytest.raises(HoldoutError, match=r"all 2 documents of source 'small'.*that other sources hold out"):
        Held(project, "share = {big = 0.2}")
    write_texts(project / "small/c.jsonl", ["the same"] * 3)
    with pytest.raises(HoldoutError, match=r"num_documents\.small=1: all 3 .*copies are held out together"):
        Held(project, "share = 0.2\nnum_documents = {small = 1}")


def test_a_source_of_which_nothing_is_held_out_is_named(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Held(project, "share = {small = 0.3, big = 0.0000001}", ["corpus"])
    assert "none of the 990 documents of source 'big'" not in caplog.text  # some are, for small's sake
    write_texts(project / "small/c.jsonl", made_up(50, 9))
    Held(project, "share = {big = 0.3, small = 0.0000001}", ["corpus"])
    assert "none of the 50 documents of source 'small' is held out" in caplog.text


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50), st.integers(0, 2**64 - 1))
def test_draws_are_even_and_depend_on_the_seed(hashes: list[int], seed: int) -> None:
    given_hashes = np.array(hashes, dtype=np.uint64)
    draws = draws_of(given_hashes, seed)
    assert draws.tolist() == [mixed(one ^ mixed(seed)) for one in hashes]
    assert is_held_out(draws, 1 << 64, draws[:0]).all()
    assert not is_held_out(draws, 0, draws[:0]).any()
    assert is_held_out(draws, 0, np.sort(draws)).all()


def test_encodings_of_both_parts_open_with_the_rows_of_the_file(tmp_path: Path) -> None:
    texts = [*(f"text {number} of a file" for number in range(40)), None]
    lines = [json.dumps({"text": text}) for text in texts]
    texts.insert(3, None)
    lines.insert(3, "")  # a blank line is no document, and counts as a row
    (tmp_path / "one.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "held.toml").write_text(
        '[sources.one]\nfiles = ["one.jsonl"]\non_error = "quarantine"\n[holdout]\nshare = 0.3\n'
        "[train]\nvocab_size = 280\n[pack]\nsequence_length = 16\n",
        encoding="utf-8",
    )
    InProcess.at(tmp_path / "store").run(tmp_path / "held.toml")
    store = tokmill.Store(tmp_path / "store")
    tok = store.find("tokenizer/held").open()
    columns = [store.find(name).open()["one"] for name in ("encoded/held", "encoded/held.validation")]
    for column in columns:
        assert len(column) == len(column.arrow()) == len(column.to_pandas()) == len(texts)
        assert column.arrow().null_count == len(texts) - len(column.rows)
    rows = [column.rows.tolist() for column in columns]
    assert sorted(rows[0] + rows[1]) == [row for row, text in enumerate(texts) if text]
    for column, its in zip(columns, rows, strict=True):
        assert [tok.decode(column[row][:-1]) for row in its] == [texts[row] for row in its]
        assert {len(column[row]) for row in range(len(texts)) if row not in its} == {0}
