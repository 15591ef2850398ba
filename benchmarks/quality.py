"""Families of tokenizers side by side: how much English a token holds, and what other languages pay.

    python benchmarks/quality.py                    # the table of docs/tokenizers.md
    python benchmarks/quality.py --row unigram --row "byte_bpe o200k" --vocab-size 8000
    python benchmarks/quality.py --pattern "(?:my|own) pattern|."

Trained on lines 1 to 1,500 of the 32 languages of NTREX and the first 4,000 documents of `english_docs`. Each
language is a source, and the documents belong to English. Tested on the other lines of NTREX, which say the
same in every language. `premium` is the number of tokens of a language over that of English; what is unknown
is lost, and is counted in tokens. sentencepiece has its own defaults, which our `sentencepiece` rows share.
"""

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from tokmill.tasks.balance.stage import BalanceParams, SourceSize, balanced, scaled_counts, scales_of
from tokmill.tokenizer import PretokenCounts, Tokenizer, count_pretokens, train_from_counts

SHARED = Path(os.environ.get("TOKMILL_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TRAINED, DOCUMENTS = 1500, 4000
LONGEST_LINE = 4192  # bytes; sentencepiece skips longer ones
DEFAULTS: Mapping[str, Any] = {"normalizer": "nmt_nfkc", "character_coverage": 0.9995}  # of sentencepiece


_BYTES: Mapping[str, Any] = {"byte_fallback": True}
_NOTHING: Mapping[str, Any] = {}


class Tokens(NamedTuple):
    """How many tokens a text has, and how many of them are unknown."""

    number: int
    unknown: int


Count = Callable[[list[str]], Tokens]


@cache
def sources() -> dict[str, list[str]]:
    """The training text of every language."""
    found = {language: lines[:TRAINED] for language, lines in ntrex().items()}
    return {**found, "eng": found["eng"] + list(islice(english_docs(), DOCUMENTS))}


@cache
def ntrex() -> dict[str, list[str]]:
    """The lines of every language."""
    files = sorted((SHARED / "ntrex").glob("*.txt"))
    return {file.stem: file.read_text("utf-8").splitlines() for file in files}


def english_docs() -> Iterator[str]:
    """The documents of the English corpus."""
    with (SHARED / "corpora" / "english_docs.jsonl.zst").open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
            yield json.loads(line)["text"]


def ours(vocab_size: int, temperature: float, **options: Any) -> Count:
    """Train a tokenizer of ours on sources that are balanced by temperature."""
    training = sources()
    if "mode" in options:  # as sentencepiece reads them
        training = {source: list(_lines([texts])) for source, texts in training.items()}
    counts = {source: count_pretokens(texts, **options) for source, texts in training.items()}
    sizes = {
        source: SourceSize(num_documents=len(texts), num_bytes=sum(len(text.encode()) for text in texts))
        for source, texts in training.items()
    }
    balance = balanced(
        BalanceParams(method="temperature", temperature=temperature, max_repetition=None), sizes
    )
    scales = scales_of(balance, counts)
    weighted = {source: scaled_counts(one.counts, scales[source]) for source, one in counts.items()}
    merged = PretokenCounts.merge(
        PretokenCounts(one.data, one.offsets, weighted[source]) for source, one in counts.items()
    )
    made = train_from_counts(
        merged, vocab_size=vocab_size, num_threads=2, count_unit=balance.resolution, **options
    )
    return lambda texts: _tokens(made, texts)


def _tokens(made: Tokenizer, texts: list[str]) -> Tokens:
    ids = made.encode_batch(texts, as_text=True).ids
    name = made.definition.model.unknown_token
    return Tokens(len(ids), 0 if name is None else int((ids == made.special_tokens[name]).sum()))


def sentencepiece(vocab_size: int, **options: Any) -> Count:
    """Train sentencepiece's tokenizer, line by line, as it takes text."""
    import sentencepiece

    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_lines(sources().values()),
        model_writer=made,
        vocab_size=vocab_size,
        num_threads=2,
        minloglevel=2,
        **options,
    )
    loaded = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    ids = partial(loaded.encode, out_type=int)
    return lambda texts: _added(Tokens(len(one), one.count(loaded.unk_id())) for one in ids(texts))


def _added(tokens: Iterable[Tokens]) -> Tokens:
    return Tokens(*map(sum, zip(*tokens, strict=True)))


def _lines(parts: Iterable[list[str]]) -> Iterator[str]:
    for texts in parts:
        for text in texts:
            yield from (line for line in text.split("\n") if 0 < len(line.encode()) <= LONGEST_LINE)


def rows(pattern: str | None = None) -> dict[str, Callable[[int], Count]]:
    """What is compared, by the name in the table: with `pattern`, that split pattern alone."""
    if pattern is not None:
        return _at_temperatures("byte_bpe, own pattern", split_pattern=pattern)
    made: dict[str, Callable[[int], Count]] = {
        "sentencepiece bpe, bytes": partial(sentencepiece, model_type="bpe", byte_fallback=True)
    }
    like = {"mode": "sentencepiece", **DEFAULTS}
    made |= _at_temperatures("char_bpe sentencepiece, bytes", family="char_bpe", byte_fallback=True, **like)
    made |= {"sentencepiece unigram": partial(sentencepiece, model_type="unigram")}
    made |= _at_temperatures("unigram sentencepiece", family="unigram", **like)
    made |= _at_temperatures("unigram sentencepiece, bytes", family="unigram", **like, **_BYTES)
    made |= _at_temperatures("byte_bpe gpt2", split_pattern="gpt2")
    made |= _at_temperatures("byte_bpe llama3", split_pattern="llama3")
    made |= _at_temperatures("byte_bpe o200k", (1.0, 2.0, 3.3), split_pattern="o200k")
    for family, more in product(("char_bpe", "unigram"), (_NOTHING, _BYTES)):
        title = f"{family} o200k{', bytes' if more else ''}"
        made |= _at_temperatures(title, family=family, split_pattern="o200k", **more)
    made |= _at_temperatures(
        "unigram o200k, coverage 0.9995", family="unigram", split_pattern="o200k", character_coverage=0.9995
    )
    made |= _at_temperatures("wordpiece bert", family="wordpiece", split_pattern="bert", score="frequency")
    return made | _at_temperatures("word_bpe bert", family="word_bpe", split_pattern="bert")


def _at_temperatures(
    name: str, temperatures: Sequence[float] = (1.0, 3.3), **options: Any
) -> dict[str, Callable[[int], Count]]:
    return {
        f"{name}, T = {temperature:g}": partial(ours, temperature=temperature, special_tokens=[], **options)
        for temperature in temperatures
    }


class Measured(NamedTuple):
    """A row: English bytes per token, the greatest premium and whose it is, the mean, tokens of all."""

    english: float
    most: float
    worst: str
    mean: float
    every: Tokens

    def __str__(self) -> str:
        """The row's cells."""
        shown = f"{self.english:.3f} | {self.most:.2f} ({self.worst}) | {self.mean:.2f} | "
        number, unknown = self.every
        return f"{shown}{number / 1000:.0f} | {f'{unknown / number:.2%}' if unknown else '–'}"


def measured(count: Count) -> Measured:
    """Count the tokens of the test text in every language."""
    tests = {language: lines[TRAINED:] for language, lines in ntrex().items()}
    tokens = {language: count(lines) for language, lines in tests.items()}
    premiums = {language: one.number / tokens["eng"].number for language, one in tokens.items()}
    worst = max(premiums, key=lambda language: premiums[language])
    size, every = sum(len(line.encode()) for line in tests["eng"]), _added(tokens.values())
    mean = statistics.mean(premiums.values())
    return Measured(size / tokens["eng"].number, premiums[worst], worst, mean, every)


def main() -> None:
    """Print the table, a row at a time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", action="append", default=[], help="only rows whose name begins so")
    parser.add_argument("--pattern", help="a split pattern of your own instead of the rows")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    options = parser.parse_args()
    wanted: Mapping[str, Callable[[int], Count]] = {
        name: make
        for name, make in rows(options.pattern).items()
        if not options.row or any(name.startswith(row) for row in options.row)
    }
    print(
        "| tokenizer | English bytes per token | worst premium | mean | thousand tokens | unknown | CPU s |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, make in wanted.items():
        before = time.process_time()
        row = measured(make(options.vocab_size))
        print(f"| {name} | {row} | {time.process_time() - before:.0f} |", flush=True)


if __name__ == "__main__":
    main()
