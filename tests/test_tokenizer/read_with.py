"""Encode texts with another library, in whichever environment it is installed.

`python read_with.py LIBRARY` says the library's version; `python read_with.py LIBRARY FILE…` reads a JSON
list of texts from standard input, and writes the list of their ids with each tokenizer file.
"""

import ctypes
import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path


def encoder(library: str, path: str) -> Callable[[str], list[int]]:
    """How the library encodes one text with the tokenizer of a file."""
    if library == "tokenizers":
        import tokenizers  # noqa: PLC0415 - only the library that is asked for

        hugging = tokenizers.Tokenizer.from_file(path)
        return lambda text: hugging.encode(text, add_special_tokens=False).ids
    if library == "fastokens":
        import fastokens  # noqa: PLC0415

        fast = fastokens.Tokenizer.from_file(path)
        return lambda text: fast.encode(text, add_special_tokens=False).ids
    if library == "mistral_common":
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer  # noqa: PLC0415

        tekken = Tekkenizer.from_file(path)
        return lambda text: tekken.encode(text, bos=False, eos=False)
    if library == "xllamacpp":
        return llama_cpp(path)
    import gigatoken  # noqa: PLC0415

    giga = gigatoken.Tokenizer(path)
    return lambda text: giga.encode(text).tolist()


class _ModelParams(ctypes.Structure):
    """llama.cpp's `llama_model_params`, up to its truth values."""

    _fields_ = (
        ("pointers", ctypes.c_void_p * 2),
        ("numbers", ctypes.c_int32 * 6),
        ("more_pointers", ctypes.c_void_p * 4),
        ("vocab_only", ctypes.c_bool),
        ("flags", ctypes.c_bool * 31),
    )


def llama_cpp(path: str) -> Callable[[str], list[int]]:
    """How llama.cpp encodes one text, with the tokens around it; called in C, since the wheel lacks it."""
    import xllamacpp  # noqa: PLC0415

    library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("*.so"))))
    library.llama_model_default_params.restype = _ModelParams
    for name in ("llama_model_load_from_file", "llama_model_get_vocab"):
        getattr(library, name).restype = ctypes.c_void_p
    params = library.llama_model_default_params()
    params.vocab_only = True
    model = library.llama_model_load_from_file(path.encode(), params)
    vocab = ctypes.c_void_p(library.llama_model_get_vocab(ctypes.c_void_p(model)))

    def encode(text: str) -> list[int]:
        data = text.encode()
        found = (ctypes.c_int32 * (len(data) + 16))()
        number = library.llama_tokenize(vocab, data, len(data), found, len(found), True, False)
        return found[:number]

    return encode


def main(library: str, *paths: str) -> None:
    if not paths:
        sys.stdout.write(importlib.metadata.version(library))
        return
    texts = json.load(sys.stdin)
    found = []
    for path in paths:
        encode = encoder(library, path)
        found.append([encode(text) for text in texts])
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
