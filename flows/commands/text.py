"""`tokmill encode` and `tokmill decode`: text to token ids and back; each line is a document."""

import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import typer
from typer import Argument, Option

from tokmill.flows.cli.app import app, command
from tokmill.flows.cli.options import StoreOption, load_tokenizer
from tokmill.flows.errors import UsageError
from tokmill.tokenizer.core.errors import SpecialTokenError

_BATCH = 1024
_MOST_BYTES = 1 << 30  # of one document: a device, or a pipe without newlines, would never end

TokenizerOption = Annotated[
    str,
    Option(
        "--tokenizer",
        "-t",
        envvar="TOKMILL_TOKENIZER",
        metavar="ARTIFACT|PATH",
        help="A tokenizer in the store (tokenizer/quickstart@v1, or just quickstart), or a file or folder.",
    ),
]
FileOption = Annotated[
    Path | None,
    Option("--file", "-f", metavar="PATH", exists=True, dir_okay=False, help="Read lines from this file."),
]
JsonLinesOption = Annotated[bool, Option("--json", help="Write one JSON object per document and line.")]


@command(
    app,
    'tokmill encode -t quickstart "def f(x): return x"',
    "tokmill encode -t quickstart --file notes.txt > ids.txt",
    "cat notes.txt | tokmill encode -t quickstart | tokmill decode -t quickstart",
    'tokmill encode -t gpt2/vocab.json --json "Hello world"',
)
def encode(
    tokenizer: TokenizerOption,
    texts: list[str] | None = Argument(None, metavar="TEXT", help="Documents; default: the input's lines."),
    file: FileOption = None,
    whole: bool = Option(False, "--whole", help="Read the input as one document, not one per line."),
    special_tokens: Literal["raise", "allowed", "as_text"] = Option(
        "raise", help="How to treat special tokens in the text: as an error, as ids, or as ordinary text."
    ),
    store: StoreOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Turn text into token ids, one line per document."""
    loaded = load_tokenizer(tokenizer, store)
    documents, num_encoded = _documents(texts, file, whole=whole), 0
    size = 1 if file is None and sys.stdin.isatty() else _BATCH  # one at a time if a person types them
    how: dict[str, Any] = {"allowed": {"allowed_special": "all"}, "as_text": {"as_text": True}}
    while batch := list(islice(documents, size)):
        try:
            encoded = loaded.encode_batch(batch, **how.get(special_tokens, {}))
        except SpecialTokenError as error:
            raise SpecialTokenError(_command_message(error, num_encoded)) from error
        num_encoded += len(batch)
        for index in range(len(batch)):
            ids = encoded[index].tolist()
            tokens = (loaded.token_bytes(token).decode("utf-8", errors="replace") for token in ids)
            entry = {"ids": ids, "num_tokens": len(ids), "tokens": list(tokens)} if as_json else None
            _write(" ".join(map(str, ids)) if entry is None else json.dumps(entry, ensure_ascii=False))


@command(
    app,
    "tokmill decode -t quickstart 40 374 257",
    "tokmill decode -t quickstart --file ids.txt",
    'echo "[40, 374, 257]" | tokmill decode -t tokenizer/quickstart@v1 --json',
)
def decode(
    tokenizer: TokenizerOption,
    ids: list[int] | None = Argument(
        None, metavar="ID", help="Ids of a document; default: the input's lines."
    ),
    file: FileOption = None,
    store: StoreOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Turn token ids into text, one document per line.

    Ids are separated by spaces, or a JSON list.
    """
    loaded = load_tokenizer(tokenizer, store)
    documents = iter([ids]) if ids else map(_parsed_ids, _numbered_lines("decode", file))
    for document in documents:
        text = loaded.decode(document)
        _write(json.dumps({"ids": document, "text": text}, ensure_ascii=False) if as_json else text)


def _command_message(error: SpecialTokenError, num_before: int) -> str:
    """Replace the library's advice by the command's options, and number documents from 1 over all batches."""
    problem = str(error).partition("; pass ")[0]
    counted = re.sub(r"document (\d+)", lambda found: f"document {num_before + int(found[1]) + 1}", problem)
    return f"{counted}; --special-tokens allowed encodes it as its id, --special-tokens as_text as text"


def _documents(texts: list[str] | None, file: Path | None, *, whole: bool) -> Iterator[str]:
    if texts and file:
        raise UsageError("encode: give texts or --file, not both")
    if texts:
        return iter(texts)
    if whole:
        with _opened(file) as stream:
            data = stream.read(_MOST_BYTES + 1)
            return iter([_text_of("encode: the input", data, at_start=True)])
    return (line for _, line in _numbered_lines("encode", file))


def _numbered_lines(command: str, file: Path | None) -> Iterator[tuple[int, str]]:
    """Yield lines as `tokenizer.core.text` has them, numbered from 1, as they come in."""
    if file is None and sys.stdin.isatty():
        typer.echo("reading lines from the terminal; Ctrl-D ends", err=True)
    with _opened(file) as stream:
        for number, line in enumerate(iter(lambda: stream.readline(_MOST_BYTES + 1), b""), start=1):
            text = _text_of(f"{command}: line {number}", line, at_start=number == 1)
            yield number, text.removesuffix("\r\n" if text.endswith("\r\n") else "\n")


def _opened(file: Path | None) -> IO[bytes]:
    return open(sys.stdin.fileno(), "rb", closefd=False) if file is None else file.open("rb")


def _text_of(what: str, data: bytes, *, at_start: bool) -> str:
    from tokmill.tokenizer.core.text import BOM

    if len(data) > _MOST_BYTES:
        raise UsageError(f"{what} has more than {_MOST_BYTES:,} bytes; end lines with a newline, or split it")
    try:
        return data.removeprefix(BOM if at_start else b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 at byte {error.start}; convert it first") from error


def _parsed_ids(numbered: tuple[int, str]) -> list[int]:
    """Read one line: `40 374 257`, `[40, 374, 257]`, or an object with `ids`."""
    number, line = numbered
    try:
        is_json = line.lstrip().startswith(("[", "{"))
        value = json.loads(line) if is_json else [int(word) for word in line.split()]
        ids = value["ids"] if isinstance(value, dict) else value
        if isinstance(ids, list) and all(type(token) is int for token in ids):
            return ids
    except (ValueError, KeyError, RecursionError):
        pass  # it has another form
    raise UsageError(
        f"decode: line {number}: {line[:60]!r} is not a list of token ids; write e.g. 40 374 257"
    )


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    if sys.stdout.isatty():
        sys.stdout.flush()
