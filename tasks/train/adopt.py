"""adopt: publish an existing tokenizer as a tokenizer artifact with an attestation.

The tokenizer is loaded from any supported format, written in tokmill's own, loaded back and checked with the
attestation's probes. It gets the same exports as a trained one. The original files are not copied.
"""

from pathlib import Path
from typing import Literal

from pydantic import Field

from tokmill.tasks.core.stage import Outcome, Params, Stage
from tokmill.tasks.formats.tokenizer import publish_tokenizer
from tokmill.tasks.remote.location import located
from tokmill.tasks.remote.objects import fetched
from tokmill.tokenizer.core.errors import FormatError


class AdoptParams(Params):
    """Which files to read, and the settings that they do not contain."""

    format: Literal[
        "auto",
        "tokmill",
        "huggingface",
        "gpt2",
        "tiktoken",
        "tekken",
        "bert",
        "sentencepiece",
        "rwkv",
        "gguf",
    ] = Field(
        default="auto",
        description="Which of a folder's tokenizer files to take: tokmill.json, tokenizer.json, vocab.json "
        "with merges.txt, *.tiktoken, tekken.json, BERT's vocab.txt, SentencePiece's *.model, RWKV's "
        "rwkv_vocab*.txt or a model's *.gguf; 'auto' takes the most complete one.",
    )
    split_pattern: str | None = Field(
        default=None,
        description="How text is cut into pre-tokens, if the files do not contain it (tiktoken, gpt2): a "
        "name such as cl100k, or a regular expression.",
    )
    special_tokens: dict[str, int] = Field(
        default={},
        description="Special tokens and their ids, if the files do not contain them (tiktoken, gpt2, rwkv).",
    )


_FILES = {
    "tokmill": "tokmill.json",
    "huggingface": "tokenizer.json",
    "gpt2": "*vocab.json",
    "tiktoken": "*.tiktoken",
    "tekken": "tekken.json",
    "bert": "*vocab.txt",
    "sentencepiece": "*.model",
    "rwkv": "rwkv_vocab*.txt",
    "gguf": "*.gguf",
}


def run(params: AdoptParams, *, out: Path, file: str | Path) -> Outcome:
    """Adopt a tokenizer into `out`.

    Args:
        params: see `AdoptParams`.
        out: the artifact's directory.
        file: the tokenizer's file, or a folder that holds it, or the URL of either.

    Raises:
        TokenizerError: the file cannot be read, or the tokenizer does not survive being written and loaded.
    """
    from tokmill.tokenizer import load

    with fetched(located(file)) as path:
        tokenizer = load(
            _chosen(path, params.format),
            split_pattern=params.split_pattern,
            special_tokens=params.special_tokens or None,
        )
    exports = publish_tokenizer(tokenizer, out)
    return Outcome(
        metrics={
            "vocab_size": tokenizer.vocab_size,
            **tokenizer.definition.model.figures(),
            "num_special_tokens": len(tokenizer.special_tokens),
            **({"num_added_tokens": len(tokenizer.added_tokens)} if tokenizer.added_tokens else {}),
            "exports": ", ".join(exports),
            "unicode_tables": "{version} ({tables})".format(**tokenizer.splitter.unicode),
        }
    )


def _chosen(path: Path, file_format: str) -> Path:
    """Return the file of the requested format if `path` is a folder; otherwise `path`."""
    if file_format == "auto" or not path.is_dir():
        return path
    found = sorted(path.glob(_FILES[file_format]))
    if len(found) == 1:
        return found[0]
    raise FormatError(
        f"adopt: format={file_format!r} needs one file {_FILES[file_format]}, but {path} has {len(found)}; "
        "name the file itself, or another format"
    )


ADOPT = Stage(verb="adopt", task="adopt", kind="tokenizer", version=6, params=AdoptParams, run=run)
