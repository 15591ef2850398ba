"""Trainers of the families beside BPE over bytes: lines of text to pieces.

Nine lines of ten are trained on, the tenth is held out: on it both sides' pieces are compared.
"""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from side_by_side.texts import Text

_LONGEST_LINE = 4192  # bytes; sentencepiece skips longer ones
_HELD_OUT = 10
_TINY = ["the cat sat on the mat", "the other cat", "a cat that sat there", "on that other mat"] * 5
# of sentencepiece; tokmill's own are no normalizer and every character
_DEFAULTS: Mapping[str, Any] = {
    "mode": "sentencepiece",
    "normalizer": "nmt_nfkc",
    "character_coverage": 0.9995,
}
_BERT: Mapping[str, Any] = {
    "split_pattern": "bert",
    "normalizer": "bert_clean+cjk_spaces+strip_nonspacing+lowercase",
}
_OURS: Mapping[str, Mapping[str, Any]] = {
    "wordpiece": {"family": "wordpiece", "score": "frequency", **_BERT},
    "word_bpe": {"family": "word_bpe", **_BERT},
    "unigram": {"family": "unigram", **_DEFAULTS},
    "sentencepiece-bpe": {"family": "char_bpe", "byte_fallback": True, **_DEFAULTS},
}


class FamilyTrainer(ABC):
    """One trainer of one kind; a subclass trains, and tells pieces and ids."""

    def __init__(self, *, kind: str, vocab_size: int, num_threads: int) -> None:
        self.kind = kind
        self.vocab_size = vocab_size
        self.num_threads = num_threads

    def prepare(self, text: Text) -> None:
        lines = list(_lines(text))
        self._held_out = lines[::_HELD_OUT]
        self._training = [line for number, line in enumerate(lines) if number % _HELD_OUT]

    def fresh(self) -> None:
        """Train on a few words, so that everything is loaded."""
        self.train(_TINY, 300 if self.kind == "sentencepiece-bpe" else 30)

    def work(self) -> Any:
        return self.train(self._training, self.vocab_size)

    def evidence(self, result: Any) -> dict[str, Any]:
        """Give the pieces, and how well they compress the held-out lines."""
        num_bytes = sum(len(line.encode()) for line in self._held_out)
        number, unknown = self.num_tokens(result, self._held_out)
        return {
            "pieces": self.pieces(result),
            "bytes_per_token": num_bytes / number,
            "unknown": unknown / number,
        }

    @abstractmethod
    def train(self, lines: list[str], vocab_size: int) -> Any:
        """Train on lines."""

    @abstractmethod
    def pieces(self, result: Any) -> list[str]:
        """Read the pieces, special ones included."""

    @abstractmethod
    def num_tokens(self, result: Any, lines: list[str]) -> tuple[int, int]:
        """Count the tokens of lines, and the unknown ones among them."""


class Tokmill(FamilyTrainer):
    """`train` over str."""

    def train(self, lines: list[str], vocab_size: int) -> Any:
        from tokmill import tokenizer

        how = {"num_threads": self.num_threads, "allow_smaller": lines is _TINY, **_OURS[self.kind]}
        return tokenizer.train(lines, vocab_size=vocab_size, **how)

    def pieces(self, result: Any) -> list[str]:
        vocabulary = result.definition.model.vocabulary
        data, offsets = vocabulary.data.tobytes(), vocabulary.offsets.tolist()
        pieces = [data[start:end] for start, end in pairwise(offsets)]
        byte_ids = vocabulary.byte_ids
        return [f"<0x{piece[0]:02X}>" if i in byte_ids else piece.decode() for i, piece in enumerate(pieces)]

    def num_tokens(self, result: Any, lines: list[str]) -> tuple[int, int]:
        ids, name = result.encode_batch(lines, as_text=True).ids, result.definition.model.unknown_token
        return len(ids), 0 if name is None else int((ids == result.special_tokens[name]).sum())


class Tokenizers(FamilyTrainer):
    """`WordPieceTrainer` or `BpeTrainer` over lists of str."""

    def train(self, lines: list[str], vocab_size: int) -> Any:
        from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

        how: dict[str, Any] = {"vocab_size": vocab_size, "special_tokens": ["[UNK]"], "show_progress": False}
        if self.kind == "wordpiece":
            made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
            trainer = trainers.WordPieceTrainer(continuing_subword_prefix="##", **how)
        else:
            made = Tokenizer(models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"))
            trainer = trainers.BpeTrainer(end_of_word_suffix="</w>", **how)
        made.normalizer = normalizers.BertNormalizer()  # ours has it by its parts
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        batches = (lines[first : first + 1000] for first in range(0, len(lines), 1000))
        made.train_from_iterator(batches, trainer, length=len(lines))
        return made

    def pieces(self, result: Any) -> list[str]:
        return list(result.get_vocab())

    def num_tokens(self, result: Any, lines: list[str]) -> tuple[int, int]:
        ids = [one.ids for one in result.encode_batch(lines, add_special_tokens=False)]
        unknown = result.token_to_id("[UNK]")
        return sum(map(len, ids)), sum(one.count(unknown) for one in ids)


class Sentencepiece(FamilyTrainer):
    """`SentencePieceTrainer.train` over lines, with its defaults."""

    def train(self, lines: list[str], vocab_size: int) -> Any:
        import sentencepiece

        model, unigram = io.BytesIO(), self.kind == "unigram"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="unigram" if unigram else "bpe",
            byte_fallback=not unigram,
            vocab_size=vocab_size,
            hard_vocab_limit=lines is not _TINY,
            num_threads=self.num_threads,
            minloglevel=2,
        )
        return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

    def pieces(self, result: Any) -> list[str]:
        return [result.id_to_piece(number) for number in range(result.get_piece_size())]

    def num_tokens(self, result: Any, lines: list[str]) -> tuple[int, int]:
        ids, unknown = result.encode(lines), result.unk_id()
        return sum(map(len, ids)), sum(one.count(unknown) for one in ids)


def _lines(text: Text) -> Iterator[str]:
    for document in text.strings():
        yield from (line for line in document.split("\n") if 0 < len(line.encode()) <= _LONGEST_LINE)


SIDES: dict[str, type[FamilyTrainer]] = {
    "tokmill": Tokmill,
    "tokenizers": Tokenizers,
    "sentencepiece": Sentencepiece,
}
