"""Families of tokenizers side by side: how much English a token holds, and what other languages pay.

    python benchmarks/quality.py                    # the table of docs/tokenizers.md, some twenty minutes
    python benchmarks/quality.py --row unigram --row "byte_bpe o200k" --vocab-size 8000

Trained on lines 1 to 1,500 of the 32 languages of NTREX and the first 4,000 documents of `english_docs`, each
a source; tested on the other lines of NTREX, which say the same in every language. `premium` is the number of
tokens of a language over that of English.
"""

import argparse
import io
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from tokmill.tasks.balance.stage import BalanceParams, SourceSize, balanced, weighted_counts
from tokmill.tokenizer import PretokenCounts, Tokenizer, count_pretokens, train_from_counts

SHARED = Path(os.environ.get("TOKMILL_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TRAINED, DOCUMENTS = 1500, 4000
Count = Callable[[list[str]], int]


@cache
def sources() -> dict[str, list[str]]:
    """The training text of every source."""
    found = {language: lines[:TRAINED] for language, lines in ntrex().items()}
    return {**found, "english_docs": list(islice(english_docs(), DOCUMENTS))}


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
    counts = {source: count_pretokens(texts, **options) for source, texts in sources().items()}
    sizes = {
        source: SourceSize(num_documents=len(texts), num_bytes=sum(len(text.encode()) for text in texts))
        for source, texts in sources().items()
    }
    balance = balanced(
        BalanceParams(method="temperature", temperature=temperature, max_repetition=None), sizes
    )
    weighted = weighted_counts(balance, {source: one.counts for source, one in counts.items()})
    merged = PretokenCounts.merge(
        PretokenCounts(one.data, one.offsets, weighted[source]) for source, one in counts.items()
    )
    made = train_from_counts(
        merged, vocab_size=vocab_size, num_threads=2, count_unit=balance.resolution, **options
    )
    return lambda texts: _tokens(made, texts)


def _tokens(made: Tokenizer, texts: list[str]) -> int:
    return len(made.encode_batch(texts, as_text=True).ids)


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
        max_sentence_length=1 << 20,
        **options,
    )
    loaded = sentencepiece.SentencePieceProcessor(model_proto=made.getvalue())
    return lambda texts: sum(map(len, loaded.encode(texts)))


def _lines(parts: Iterable[list[str]]) -> Iterator[str]:
    for texts in parts:
        for text in texts:
            yield from filter(None, text.split("\n"))


def rows() -> dict[str, Callable[[int], Count]]:
    """What is compared, by the name in the table."""
    whole = {"model_type": "unigram"}
    made: dict[str, Callable[[int], Count]] = {
        "sentencepiece bpe, bytes": lambda size: sentencepiece(size, model_type="bpe", byte_fallback=True),
        "sentencepiece unigram": lambda size: sentencepiece(size, **whole),
        "sentencepiece unigram, bytes": lambda size: sentencepiece(size, **whole, byte_fallback=True),
    }
    for pattern in ("gpt2", "llama3", "o200k"):
        for temperature in (1.0, 3.3):
            made[f"byte_bpe {pattern}, T = {temperature:g}"] = lambda size, p=pattern, t=temperature: ours(
                size, t, split_pattern=p, special_tokens=[]
            )
    for family in ("char_bpe", "unigram", "wordpiece"):
        more = {"score": "frequency"} if family == "wordpiece" else {}
        pattern = "bert" if family == "wordpiece" else "o200k"
        for temperature in (1.0, 3.3):
            made[f"{family} {pattern}, T = {temperature:g}"] = (
                lambda size, f=family, t=temperature, p=pattern, m=more: ours(
                    size, t, family=f, split_pattern=p, special_tokens=[], **m
                )
            )
    for family in ("char_bpe", "unigram"):
        for temperature in (1.0, 3.3):
            made[f"{family} sentencepiece, T = {temperature:g}"] = lambda size, f=family, t=temperature: ours(
                size, t, family=f, mode="sentencepiece", byte_fallback=True, special_tokens=[]
            )
    return made


def measured(count: Count) -> tuple[float, float, str, float]:
    """English bytes per token, the greatest premium and whose it is, and the mean premium."""
    tests = {language: lines[TRAINED:] for language, lines in ntrex().items()}
    tokens = {language: count(lines) for language, lines in tests.items()}
    premiums = {language: number / tokens["eng"] for language, number in tokens.items()}
    worst = max(premiums, key=lambda language: premiums[language])
    size = sum(len(line.encode()) for line in tests["eng"])
    return size / tokens["eng"], premiums[worst], worst, statistics.mean(premiums.values())


def main() -> None:
    """Print the table, a row at a time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", action="append", default=[], help="only rows whose name begins so")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    options = parser.parse_args()
    wanted: Mapping[str, Callable[[int], Count]] = {
        name: make
        for name, make in rows().items()
        if not options.row or any(name.startswith(row) for row in options.row)
    }
    print("| tokenizer | English bytes per token | worst premium | mean premium | CPU s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, make in wanted.items():
        before = time.process_time()
        english, most, worst, mean = measured(make(options.vocab_size))
        cost = time.process_time() - before
        print(f"| {name} | {english:.3f} | {most:.2f} ({worst}) | {mean:.2f} | {cost:.0f} |", flush=True)


if __name__ == "__main__":
    main()
