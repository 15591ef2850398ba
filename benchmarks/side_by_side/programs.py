"""What a notebook would write with each library: load a vocabulary, encode, decode, count.

The variables are `folder`, `ranks`, `json` (files), `name` (of the vocabulary), `ahead` (a folder with
pre-releases), `text`, and, once it has been encoded, `ids`.
"""

from dataclasses import dataclass

from side_by_side.names import AHEAD


@dataclass(frozen=True)
class Program:
    """One library's statements and expressions.

    Attributes:
        load: makes whatever the expressions use.
        encode: gives the ids as a list of int.
        decode: gives the text.
        count: gives the number of tokens; none where the library has no call of its own for it.
    """

    load: str
    encode: str
    decode: str
    count: str | None = None

    def first_token(self) -> str:
        """Return the program that loads and encodes."""
        return f"{self.load}\nids = {self.encode}\n"


_TOKENIZERS = """
from tokenizers import Tokenizer
tok = Tokenizer.from_file(folder + "/" + json)
"""

PROGRAMS = {
    "tokmill": Program(
        """
from tokmill import tokenizer
tok = tokenizer.load(folder + "/" + ranks, split_pattern=name)
""",
        "tok.encode(text)",
        "tok.decode(ids)",
        "tok.count_tokens(text)",
    ),
    "tiktoken": Program(
        """
import base64, tiktoken
from tiktoken_ext import openai_public
lines = map(bytes.split, open(folder + "/" + ranks, "rb").read().splitlines())
table = {base64.b64decode(token): int(rank) for token, rank in lines}
openai_public.load_tiktoken_bpe = lambda *_args, **_more: table
openai_public.data_gym_to_mergeable_bpe_ranks = lambda *_args, **_more: table
made = openai_public.ENCODING_CONSTRUCTORS[name if name == "gpt2" else name + "_base"]()
tok = tiktoken.Encoding(**(made | {"special_tokens": {}, "explicit_n_vocab": None}))
""",
        "tok.encode_ordinary(text)",
        "tok.decode(ids)",
    ),
    "tokenizers": Program(_TOKENIZERS, "tok.encode(text, add_special_tokens=False).ids", "tok.decode(ids)"),
    AHEAD: Program(
        f"import sys\nsys.path.insert(0, ahead)\n{_TOKENIZERS}",
        "tok.encode(text, add_special_tokens=False).ids",
        "tok.decode(ids)",
    ),
    "gigatoken": Program(
        """
import gigatoken
tok = gigatoken.Tokenizer.from_tiktoken(folder + "/" + ranks, pretokenizer=name, special_tokens={})
""",
        "tok.encode(text).tolist()",
        "tok.decode(ids)",
    ),
    "fastokens": Program(
        """
from fastokens import Tokenizer
if name == "gpt2":
    tok = Tokenizer.from_file(folder + "/" + json)
else:
    tok = Tokenizer.from_tiktoken(folder + "/" + ranks, encoding=name + "_base")
""",
        "list(tok.encode(text).ids)",
        "tok.decode(ids)",
    ),
    "quicktok-v1": Program(
        """
import quicktok
tok = quicktok.get_encoding(name + "_base")
""",
        "list(tok.encode(text))",
        "tok.decode(ids)",
    ),
}
