"""The encoders of WordPiece, Unigram and SentencePiece's models; see `encoders`.

A side reads `tokenizer.json` or `tokenizer.model`, whichever the vocabulary has; one that does not read this
form or this family says so and is left out. Without a way to take such a vocabulary at all: fastokens and
wordchipper (BPE only), blingfire (automata that its own compiler makes), flash-tokenizer (cuts texts off
after a number of tokens), simple-sentencepiece (does not normalize).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side import encoders
from side_by_side.encoders import Encoder, Ragged
from side_by_side.names import AHEAD
from side_by_side.outcomes import UnsupportedError
from side_by_side.texts import Text

MODEL = "tokenizer.model"


class FamilyEncoder(Encoder):
    """An encoder of a vocabulary that is one file, in either form."""

    def __init__(self, *, vocabulary: str, files: str, num_threads: int) -> None:
        super().__init__(vocabulary=vocabulary, files=files, num_threads=num_threads)
        self.model = Path(files) / MODEL

    def json_only(self) -> str:
        """Return the path of `tokenizer.json`."""
        if not self.json.is_file():
            raise UnsupportedError("reads no .model of SentencePiece's")
        return str(self.json)

    def model_only(self) -> str:
        """Return the path of `tokenizer.model`."""
        if not self.model.is_file():
            raise UnsupportedError("reads no tokenizer.json")
        return str(self.model)


class Tokmill(FamilyEncoder):
    """`encode_buffers`: UTF-8 and offsets."""

    def load(self) -> Callable[[Any], Any]:
        from tokmill import tokenizer

        tok = tokenizer.load(self.json if self.json.is_file() else self.model)
        return lambda text: tok.encode_buffers(*text, as_text=True, num_threads=self.num_threads)

    def form(self, text: Text) -> Any:
        return np.frombuffer(text.data, np.uint8), text.offsets

    def ids(self, result: Any) -> Ragged:
        return result.ids, np.diff(result.offsets)


class TokmillFromStr(Tokmill):
    """`encode_batch`: a list of str."""

    def load(self) -> Callable[[Any], Any]:
        from tokmill import tokenizer

        tok = tokenizer.load(self.json if self.json.is_file() else self.model)
        return lambda text: tok.encode_batch(text, as_text=True, num_threads=self.num_threads)

    def form(self, text: Text) -> Any:
        return list(text.strings())


class Tokenizers(FamilyEncoder, encoders.Tokenizers):
    """`encode_batch_fast`."""

    def load(self) -> Callable[[Any], Any]:
        self.json_only()
        return super().load()


class TokenizersAhead(FamilyEncoder, encoders.TokenizersAhead):
    """`encode_batch` of the pre-release."""

    def load(self) -> Callable[[Any], Any]:
        self.json_only()
        return super().load()


class Sentencepiece(FamilyEncoder):
    """`encode` of a list of str."""

    def load(self) -> Callable[[Any], Any]:
        import sentencepiece

        made = sentencepiece.SentencePieceProcessor(model_file=self.model_only())
        return lambda texts: made.encode(texts, num_threads=self.num_threads)


class Nanotoken(FamilyEncoder):
    """`encode_batch` on the calling thread, as ragged arrays."""

    def load(self) -> Callable[[Any], Any]:
        import nanotoken

        tok = nanotoken.Tokenizer(self.json_only())
        how = {"add_special_tokens": False, "parallel": self.num_threads > 1}
        return lambda texts: tok.encode_batch(texts, **how)

    def ids(self, result: Any) -> Ragged:
        return np.asarray(result.ids), np.asarray(result.lengths)


class Kitoken(FamilyEncoder):
    """`encode_all`."""

    def load(self) -> Callable[[Any], Any]:
        from kitoken import Kitoken as Library

        if self.json.is_file():
            return Library.from_tokenizers_file(str(self.json)).encode_all
        return Library.from_sentencepiece_file(str(self.model)).encode_all


class Splintr(FamilyEncoder):
    """`encode_raw` one by one: `encode_batch` puts special tokens around texts."""

    def load(self) -> Callable[[Any], Any]:
        import splintr

        tok = splintr.from_json(self.json_only())
        return lambda texts: [tok.encode_raw(text) for text in texts]


class Tokie(FamilyEncoder):
    """`encode_batch`."""

    def load(self) -> Callable[[Any], Any]:
        import tokie

        tok = tokie.Tokenizer.from_json(self.json_only())
        return lambda texts: tok.encode_batch(texts, add_special_tokens=False)

    def ids(self, result: Any) -> Ragged:
        return super().ids([encoding.ids for encoding in result])


class Iree(FamilyEncoder):
    """`encode_batch`."""

    def load(self) -> Callable[[Any], Any]:
        from iree.tokenizer import Tokenizer

        return Tokenizer.from_file(self.json_only()).encode_batch


class Gigatoken(FamilyEncoder):
    """`encode_batch` of its own interface, on the calling thread."""

    def load(self) -> Callable[[Any], Any]:
        import gigatoken

        if self.vocabulary != "sentencepiece-bpe":
            raise UnsupportedError("reads BPE only")
        tok = gigatoken.Tokenizer.from_sentencepiece(self.model_only())
        return lambda texts: tok.encode_batch(texts, parallel=self.num_threads > 1)

    def ids(self, result: Any) -> Ragged:
        import awkward

        return awkward.to_numpy(awkward.flatten(result)), awkward.to_numpy(awkward.num(result))


SIDES: dict[str, type[Encoder]] = {
    "tokmill": Tokmill,
    "tokmill from str": TokmillFromStr,
    "tokenizers": Tokenizers,
    AHEAD: TokenizersAhead,
    "sentencepiece": Sentencepiece,
    "nanotoken": Nanotoken,
    "kitoken": Kitoken,
    "splintr-rs": Splintr,
    "tokie": Tokie,
    "iree-tokenizer": Iree,
    "gigatoken": Gigatoken,
}
