"""Encode texts with another library, in whichever environment it is installed.

`python read_with.py LIBRARY` says the library's version; `python read_with.py LIBRARY tokenizer.json` reads a
JSON list of texts from standard input and writes the list of their ids.
"""

import importlib.metadata
import json
import sys
from collections.abc import Callable


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
    import gigatoken  # noqa: PLC0415

    giga = gigatoken.Tokenizer(path)
    return lambda text: giga.encode(text).tolist()


def main(library: str, *paths: str) -> None:
    """Say the version, or encode."""
    if not paths:
        sys.stdout.write(importlib.metadata.version(library))
        return
    encode = encoder(library, paths[0])
    json.dump([encode(text) for text in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
