"""What a notebook shows of a tokenizer."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    from tokmill.tokenizer.tokenizer import Tokenizer

_SHOWN = 24
_SPACES = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


def sheet_of(tok: "Tokenizer") -> str:
    """Return a tokenizer's figures, special tokens and longest tokens as HTML."""
    pairs: dict[str, object] = {
        "family": tok.family,
        "vocabulary": f"{tok.vocab_size:,} tokens",
        "split pattern": tok.definition.pre_tokenizer.split_pattern,
        "special tokens": _listed(tok.special_tokens),
        **({"added tokens": _listed(tok.added_tokens)} if tok.added_tokens else {}),
        "longest tokens": " ".join(_longest(tok)),
    }
    return markup.sheet("Tokenizer", markup.figures(pairs))


def _listed(names: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name} = {token}" for name, token in list(names.items())[:_SHOWN])
    return shown + (f", … ({len(names)} in all)" if len(names) > _SHOWN else "") or "none"


def _longest(tok: "Tokenizer") -> list[str]:
    """Return the longest tokens that stand for text, spaces made visible; of equal ones the first ids."""
    ordinary = tok.definition.vocabulary.ordinary()
    found = sorted(ordinary, key=lambda entry: (-len(entry[1]), entry[0]))[:_SHOWN]
    return [token.decode("utf-8", "replace").translate(_SPACES) for _, token in found]
