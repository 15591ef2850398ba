"""The encoders: each as its own documentation has it for encoding many documents at once.

A fresh encoder has been loaded and has encoded two words; it has not seen the text. Special tokens in the
text are text to all of them, as in tiktoken's `encode_ordinary`. Peers whose tables are made from a
vocabulary's files get the same two files (see `vocabularies`).
"""

import base64
import hashlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side.environment import ahead_folder
from side_by_side.names import AHEAD, TRAINED
from side_by_side.outcomes import UnsupportedError
from side_by_side.texts import Text
from side_by_side.vocabularies import JSON, RANKS

Ragged = tuple[np.ndarray, np.ndarray]  # ids, and the number of them in each document

_TINY = "ab 0"


class Encoder(ABC):
    """One encoder on one text.

    A subclass says how to load it, in which form it likes text, how it encodes a batch of that, and how to
    read the ids from what it returns.
    """

    def __init__(self, *, vocabulary: str, files: str, num_threads: int) -> None:
        self.vocabulary = vocabulary
        self.pattern = "gpt2" if vocabulary == TRAINED else vocabulary  # how the text is split
        self.ranks, self.json = Path(files) / RANKS, Path(files) / JSON
        self.num_threads = num_threads

    def prepare(self, text: Text) -> None:
        """Hold the text as this side likes it."""
        self._tiny, self._text = self.form(Text.of([_TINY.encode()])), self.form(text)
        self._encode: Callable[[Any], Any] | None = None

    def fresh(self) -> None:
        """Load an encoder that has not seen the text."""
        self._encode = None  # the one before goes first, so that its memory is not counted twice
        self._encode = self.load()
        self._encode(self._tiny)

    def work(self) -> Any:
        """Encode the text."""
        assert self._encode is not None
        return self._encode(self._text)

    def evidence(self, result: Any) -> dict[str, Any]:
        """Give a digest of each document's ids, and how many there are."""
        ids, lengths = self.ids(result)
        ends = np.cumsum(lengths).tolist()
        flat = memoryview(np.ascontiguousarray(ids, "<u4").tobytes())
        bounds = zip([0, *ends[:-1]], ends, strict=True)
        digests = [hashlib.blake2b(flat[4 * i : 4 * j], digest_size=8).hexdigest() for i, j in bounds]
        return {"documents": digests, "num_tokens": len(ids)}

    @abstractmethod
    def load(self) -> Callable[[Any], Any]:
        """Load the encoder; returns what encodes a text in its form."""

    def form(self, text: Text) -> Any:
        """Give a text as `load`'s result takes it: a list of str."""
        return list(text.strings())

    def ids(self, result: Any) -> Ragged:
        """Read the ids of what was returned: a list of lists."""
        lengths = np.fromiter(map(len, result), np.int64, len(result))
        return np.fromiter(chain.from_iterable(result), np.uint32, int(lengths.sum())), lengths


class Tokmill(Encoder):
    """`encode_buffers`: UTF-8 and offsets, as they lie in an Arrow array."""

    def load(self) -> Callable[[Any], Any]:
        from tokmill import tokenizer

        tok = tokenizer.load(self.ranks, split_pattern=self.pattern)
        return lambda text: tok.encode_buffers(*text, as_text=True, num_threads=self.num_threads)

    def form(self, text: Text) -> Any:
        return np.frombuffer(text.data, np.uint8), text.offsets

    def ids(self, result: Any) -> Ragged:
        return result.ids, np.diff(result.offsets)


class TokmillFromStr(Tokmill):
    """`encode_batch`: a list of str."""

    def load(self) -> Callable[[Any], Any]:
        from tokmill import tokenizer

        tok = tokenizer.load(self.ranks, split_pattern=self.pattern)
        return lambda text: tok.encode_batch(text, as_text=True, num_threads=self.num_threads)

    def form(self, text: Text) -> Any:
        return list(text.strings())


class Tiktoken(Encoder):
    """`encode_ordinary` document by document, `encode_ordinary_batch` on several threads."""

    def load(self) -> Callable[[Any], Any]:
        import tiktoken
        from tiktoken_ext import openai_public

        lines = map(bytes.split, self.ranks.read_bytes().splitlines())
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
        # its constructors fetch the ranks from the network; patterns and all else stay theirs
        openai_public.load_tiktoken_bpe = lambda *_args, **_more: ranks
        openai_public.data_gym_to_mergeable_bpe_ranks = lambda *_args, **_more: ranks
        name = self.pattern if self.pattern == "gpt2" else f"{self.pattern}_base"
        arguments = openai_public.ENCODING_CONSTRUCTORS[name]() | {"special_tokens": {}}
        arguments.pop("explicit_n_vocab", None)
        encoding = tiktoken.Encoding(**arguments)
        if self.num_threads == 1:
            return lambda texts: [encoding.encode_ordinary(text) for text in texts]
        return lambda texts: encoding.encode_ordinary_batch(texts, num_threads=self.num_threads)


class Tokenizers(Encoder):
    """`encode_batch_fast` (which leaves out offsets into the text)."""

    def load(self) -> Callable[[Any], Any]:
        from tokenizers import Tokenizer

        tok = Tokenizer.from_file(str(self.json))
        return lambda texts: tok.encode_batch_fast(texts, add_special_tokens=False)

    def ids(self, result: Any) -> Ragged:
        return super().ids([encoding.ids for encoding in result])


class TokenizersAhead(Tokenizers):
    """`encode_batch` of the pre-release, which has no other and lies in a folder of its own."""

    def load(self) -> Callable[[Any], Any]:
        if not (ahead_folder() / "tokenizers").is_dir():
            raise UnsupportedError("the pre-release is not installed here")
        if str(ahead_folder()) not in sys.path:
            sys.path.insert(0, str(ahead_folder()))
        from tokenizers import Tokenizer

        tok = Tokenizer.from_file(str(self.json))
        return lambda texts: tok.encode_batch(texts, add_special_tokens=False)


class Gigatoken(Encoder):
    """`encode_batch` of its own interface, on bytes; on the calling thread if there is to be only one."""

    def load(self) -> Callable[[Any], Any]:
        import gigatoken

        tok = gigatoken.Tokenizer.from_tiktoken(self.ranks, pretokenizer=self.pattern, special_tokens={})
        return lambda texts: tok.encode_batch(texts, parallel=self.num_threads > 1)

    def form(self, text: Text) -> Any:
        return list(text.documents())

    def ids(self, result: Any) -> Ragged:
        import awkward

        lengths = awkward.to_numpy(awkward.num(result))
        return awkward.to_numpy(awkward.flatten(result)), lengths


class Fastokens(Encoder):
    """`encode_batch_flat`. Its fast scanners are those of its presets, and of Hugging Face's GPT-2."""

    def load(self) -> Callable[[Any], Any]:
        from fastokens import Tokenizer

        if self.pattern == "gpt2":
            tok = Tokenizer.from_file(str(self.json))
        else:
            tok = Tokenizer.from_tiktoken(str(self.ranks), encoding=f"{self.vocabulary}_base")
        return lambda texts: tok.encode_batch_flat(texts, split_special_tokens=True)

    def ids(self, result: Any) -> Ragged:
        flat, offsets = result
        return np.frombuffer(flat, np.uint32), np.diff(np.frombuffer(offsets, np.uint64).astype(np.int64))


class Quicktok(Encoder):
    """`encode_batch`, with the vocabularies that it brings along (GPT-2 is not among them)."""

    def load(self) -> Callable[[Any], Any]:
        import quicktok

        if self.pattern == "gpt2":
            raise UnsupportedError("brings no GPT-2, and imports no vocabulary that is split as GPT-2's")
        tok = quicktok.Tokenizer(f"{self.vocabulary}_base")
        return lambda texts: tok.encode_batch(texts, self.num_threads)

    def ids(self, result: Any) -> Ragged:
        ids, offsets = result
        return ids, np.diff(offsets)


SIDES: dict[str, type[Encoder]] = {
    "tokmill": Tokmill,
    "tokmill from str": TokmillFromStr,
    "tiktoken": Tiktoken,
    "tokenizers": Tokenizers,
    AHEAD: TokenizersAhead,
    "gigatoken": Gigatoken,
    "fastokens": Fastokens,
    "quicktok-v1": Quicktok,
}
