"""What a notebook shows of a tokenizer."""

from collections.abc import Mapping

from tokmill.tokenizer.core import markup
from tokmill.tokenizer.pipeline.definition import Definition

_SHOWN = 24
_SPACES = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


def sheet_of(definition: Definition) -> str:
    """Return a tokenizer's figures, special tokens and longest tokens as HTML."""
    pairs: dict[str, object] = {
        "family": definition.family,
        "vocabulary": f"{definition.vocab_size:,} tokens",
        "split pattern": definition.pre_tokenizer.split_pattern,
        "special tokens": _listed(definition.special_tokens),
        **({"added tokens": _listed(definition.added_ids)} if definition.added_ids else {}),
        "longest tokens": " ".join(_longest(definition)),
    }
    return markup.sheet("Tokenizer", markup.figures(pairs))


def _listed(names: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name} = {token}" for name, token in list(names.items())[:_SHOWN])
    return shown + (f", … ({len(names)} in all)" if len(names) > _SHOWN else "") or "none"


def _longest(definition: Definition) -> list[str]:
    """Return the longest tokens that stand for text, spaces made visible; of equal ones the first ids."""
    ordinary = definition.vocabulary.ordinary()
    found = sorted(ordinary, key=lambda entry: (-len(entry[1]), entry[0]))[:_SHOWN]
    return [token.decode("utf-8", "replace").translate(_SPACES) for _, token in found]
