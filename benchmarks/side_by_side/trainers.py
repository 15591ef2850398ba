"""The BPE trainers: GPT-2's split pattern (but for sentencepiece, which cuts text its own way), bytes first.

A document is never merged with the next one. Each is called as its own documentation has it for much text.
"""

import atexit
import inspect
import io
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side.texts import Text

# GPT-2's pattern as GPT-2's authors wrote it, for those who want to be told
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
_SAMPLE_BYTES = 1_000_000
_TINY = Text.of([b"the cat sat on the mat", b"the other cat"])


class Trainer(ABC):
    """One trainer on one text; a subclass says in which form it likes text, and how it trains on that."""

    def __init__(self, *, vocab_size: int, num_threads: int) -> None:
        self.vocab_size = vocab_size
        self.num_threads = num_threads

    def prepare(self, text: Text) -> None:
        self._sample = text.data[:_SAMPLE_BYTES].decode("utf-8", "ignore")
        self._text = self.form(text)

    def fresh(self) -> None:
        """Train on a few words, so that everything is loaded."""
        self.train(self.form(_TINY), 260)

    def work(self) -> Any:
        return self.train(self._text, self.vocab_size)

    def evidence(self, result: Any) -> dict[str, Any]:
        """Give what was merged, in order, and how well that compresses the beginning of the text."""
        merges, tokens = self.merges(result), self.tokens(result)
        return {
            "merges": merges and [[left.hex(), right.hex()] for left, right in merges],
            "tokens": [token.hex() for token in tokens],
            "bytes_per_token": len(self._sample.encode()) / self.num_tokens(result, tokens),
        }

    def form(self, text: Text) -> Any:
        """Give a text as `train` takes it: a list of str."""
        return list(text.strings())

    @abstractmethod
    def train(self, text: Any, vocab_size: int) -> Any:
        """Train on a text in its form."""

    def merges(self, result: Any) -> list[tuple[bytes, bytes]] | None:
        """Read the merges, in order, unless only their results are told."""
        return None

    def tokens(self, result: Any) -> list[bytes]:
        """Read what was merged, in order."""
        return [left + right for left, right in self.merges(result)]

    def num_tokens(self, result: Any, tokens: list[bytes]) -> int:
        """Count the tokens of the beginning of the text; with tiktoken, which takes any ranks."""
        import tiktoken

        ranks = {bytes([i]): i for i in range(256)} | {token: 256 + i for i, token in enumerate(tokens)}
        encoding = tiktoken.Encoding("trained", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
        return len(encoding.encode_ordinary(self._sample))


class Tokmill(Trainer):
    """`count_buffers` on UTF-8 and offsets, then `train_from_counts`, as the stages have it."""

    def form(self, text: Text) -> Any:
        return np.frombuffer(text.data, np.uint8), text.offsets

    def train(self, text: Any, vocab_size: int) -> Any:
        from tokmill import tokenizer
        from tokmill.tokenizer.counting import count_buffers
        from tokmill.tokenizer.splitting import compile_pattern

        threads = {"num_threads": self.num_threads}
        count, train = count_buffers, tokenizer.train_from_counts
        counts = count(*text, compile_pattern("gpt2"), **_taken(count, threads))
        return train(counts, vocab_size=vocab_size, tie_break="lowest_ids", **_taken(train, threads))

    def merges(self, result: Any) -> list[tuple[bytes, bytes]]:
        return list(result.merges)


class TokmillFromStr(Tokmill):
    """`train` over str."""

    def form(self, text: Text) -> Any:
        return list(text.strings())

    def train(self, text: Any, vocab_size: int) -> Any:
        from tokmill import tokenizer

        how = {"tie_break": "lowest_ids", "num_threads": self.num_threads}
        return tokenizer.train(text, vocab_size=vocab_size, **how)


class Tokenizers(Trainer):
    """`BpeTrainer` over an iterator of lists of str."""

    def train(self, text: Any, vocab_size: int) -> Any:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
        tok.train_from_iterator(_batches(text, 1000), trainer, length=len(text))
        return tok

    def merges(self, result: Any) -> list[tuple[bytes, bytes]]:
        import json

        from tokmill.tokenizer.core.text import to_bytes

        pairs = json.loads(result.to_str())["model"]["merges"]
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in pairs]
        return [(to_bytes(left), to_bytes(right)) for left, right in pairs]


class Gigatoken(Trainer):
    """`train_bpe` on one bytes object, documents parted by a separator; ties as `tokenizers` has them."""

    _SEPARATOR = b"\x00<next document>\x00"

    def form(self, text: Text) -> Any:
        if self._SEPARATOR in text.data:
            raise ValueError(f"the text holds {self._SEPARATOR!r}, which parts documents here")
        return self._SEPARATOR.join(text.documents())

    def train(self, text: Any, vocab_size: int) -> Any:
        import gigatoken

        return gigatoken.train_bpe(
            text, vocab_size, [], tie_breaking="huggingface", separator=self._SEPARATOR
        )

    def merges(self, result: Any) -> list[tuple[bytes, bytes]]:
        return list(result[1])


class Gigabpe(Trainer):
    """`train_bpe` over files, which is all that it reads: one file, in which it takes each line by itself."""

    def form(self, text: Text) -> Any:
        with tempfile.NamedTemporaryFile(suffix=".txt", delete=False) as file:
            file.write(text.data)
        atexit.register(Path(file.name).unlink, missing_ok=True)
        return file.name

    def train(self, text: Any, vocab_size: int) -> Any:
        import gigabpe

        how = {"pretokenizer": "bytelevel", "special_tokens": [], "threads": self.num_threads}
        return gigabpe.train_bpe([text], vocab_size, **how)

    def merges(self, result: Any) -> list[tuple[bytes, bytes]]:
        from tokmill.tokenizer.core.text import to_bytes

        return [(to_bytes(left), to_bytes(right)) for left, right in result[1]]


class Rustbpe(Trainer):
    """`train_from_iterator` over str."""

    def train(self, text: Any, vocab_size: int) -> Any:
        import rustbpe

        tok = rustbpe.Tokenizer()
        tok.train_from_iterator(iter(text), vocab_size=vocab_size, pattern=GPT2)
        return tok

    def tokens(self, result: Any) -> list[bytes]:
        return [
            bytes(token) for token, rank in sorted(result.get_mergeable_ranks(), key=_rank) if rank >= 256
        ]


class Bpeasy(Trainer):
    """`train_bpe` over str, all of it one batch, which is its fastest; tokens of any length."""

    def train(self, text: Any, vocab_size: int) -> Any:
        import bpeasy

        return bpeasy.train_bpe(iter(text), GPT2, 1 << 20, vocab_size, len(text))

    def tokens(self, result: Any) -> list[bytes]:
        return [token for token, _ in sorted(result.items(), key=_rank) if len(token) > 1]


class Sentencepiece(Trainer):
    """`SentencePieceTrainer.train` over lines, characters first, with its own way to cut text.

    No normalization and no limit to a line's length, so that it sees the same text; the rarest 0.05 % of
    characters become bytes, which is its default with `byte_fallback` and keeps the alphabet out of the size.
    """

    def form(self, text: Text) -> Any:
        return [line for document in text.strings() for line in document.split("\n") if line]

    def fresh(self) -> None:
        import sentencepiece

        self._package = sentencepiece

    def train(self, text: Any, vocab_size: int) -> Any:
        model = io.BytesIO()
        self._package.SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            max_sentence_length=1 << 30,
            num_threads=self.num_threads,
            minloglevel=2,
        )
        return self._package.SentencePieceProcessor(model_proto=model.getvalue())

    def tokens(self, result: Any) -> list[bytes]:
        numbers = range(result.get_piece_size())
        pieces = [result.id_to_piece(i) for i in numbers if not (result.is_control(i) or result.is_byte(i))]
        return [piece.replace("▁", " ").encode() for piece in pieces if len(piece) > 1]

    def num_tokens(self, result: Any, tokens: list[bytes]) -> int:
        lines = self._sample.split("\n")
        return sum(map(len, result.encode(lines))) + len(lines) - 1  # a line's end is one token to the others


def _taken(function: Callable[..., Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Leave out the arguments that a function does not have (yet)."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in wanted.items() if name in known}


def _batches(texts: list[str], size: int) -> Iterator[list[str]]:
    waiting = iter(texts)
    while batch := list(islice(waiting, size)):
        yield batch


def _rank(entry: tuple[Any, int]) -> int:
    return entry[1]


SIDES: dict[str, type[Trainer]] = {
    "tokmill": Tokmill,
    "tokmill from str": TokmillFromStr,
    "tokenizers": Tokenizers,
    "gigatoken": Gigatoken,
    "gigabpe": Gigabpe,
    "rustbpe": Rustbpe,
    "bpeasy": Bpeasy,
    "sentencepiece": Sentencepiece,
}
