"""A tokenizer's card as Markdown. Every number is one of `tokenizer.facts_of`; this module lays them out.

How to load its exports in the libraries that read them is code that can be copied; a test runs each block and
compares its ids with those of the tokenizer.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.audit.summary import TEXTS
from tokmill.tasks.card.words import (
    Column,
    Facts,
    code,
    document,
    figures_text,
    first_of,
    listed,
    number_of,
    opening,
    ratio,
    section,
)
from tokmill.tasks.core.markdown import cell, percent
from tokmill.tokenizer.pipeline.families import find_family

_SHOWN_SPECIALS = 40
_ORIGINS = {
    "trained": "trained on the sources below",
    "adopted": "an existing tokenizer",
    "extended": "an existing tokenizer with terms added",
    "trimmed": "an existing tokenizer with tokens taken away",
}
_UNUSED_IN = {"training": "the training text", "text": "the text that was measured"}
_WHY = {
    "unreachable": "no text gives it",
    "never_seen": "never seen",
    "rare": "rare",
    "fragment": "a fragment of a character",
}
HERE = "path/to/tokenizer"
"""The artifact's folder, in the code."""
TEXT = "Hello world"
_OWN = f"""import tokmill

tokenizer = tokmill.load("{HERE}")
ids = tokenizer.encode("{TEXT}")"""
_CODE = {
    "huggingface": {
        "transformers": """from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{folder}")
ids = tokenizer.encode("{text}", add_special_tokens=False)""",
        "tokenizers": """from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("{folder}/tokenizer.json")
ids = tokenizer.encode("{text}", add_special_tokens=False).ids""",
    },
    "tiktoken": {
        "tiktoken": """import json
from pathlib import Path

import tiktoken
from tiktoken.load import load_tiktoken_bpe

ranks = load_tiktoken_bpe("{folder}/tokenizer.tiktoken")
usage = json.loads(Path("{folder}/tokenizer.tiktoken.sidecar.json").read_text("utf-8"))
tokenizer = tiktoken.Encoding(
    "own", pat_str=usage["pat_str"], mergeable_ranks=ranks, special_tokens=usage["special_tokens"]
)
ids = tokenizer.encode("{text}")"""
    },
    "sentencepiece": {
        "sentencepiece": """import sentencepiece

tokenizer = sentencepiece.SentencePieceProcessor(model_file="{folder}/tokenizer.model")
ids = tokenizer.encode("{text}")"""
    },
    "tekken": {
        "mistral-common": """from mistral_common.tokens.tokenizers.tekken import Tekkenizer

tokenizer = Tekkenizer.from_file("{folder}/tekken.json")
ids = tokenizer.encode("{text}", bos=False, eos=False)"""
    },
}


def to_markdown(facts: Facts) -> str:
    """The card as a Markdown document."""
    family = facts["family"].replace("_", "-")
    readable = {one["format"] for one in facts["exports"] if one["files"]}
    front = {
        "library_name": "transformers" if "huggingface" in readable else "tokmill",
        "tags": ["tokmill", "tokenizer", family, *facts["tags"]],
    }
    sections = [_opening, _decisions, _trained_on, _measured, _languages, _vocabulary, _probes, _special]
    return document(front, facts, [of(facts) for of in [*sections, _loading]])


def _opening(facts: Facts) -> list[str]:
    last = facts["sources"][-1] if facts["sources"] else {}
    overall = next((row for row in facts["sources"] if row["source"] == ALL), last)
    glance = (
        f"**{find_family(facts['family']).title}**, {_ORIGINS[facts['origin']]}: "
        f"**{facts['vocab_size']:,} tokens**{figures_text(facts['figures'])}; "
        f"**{ratio(overall.get('bytes_per_token'))} bytes per token** of {TEXTS[facts['text']]}."
    )
    if lost := overall.get("unknown_share"):
        glance += f" **It loses text**: {percent(lost)} of these tokens are unknown."
    digest = f"Content digest of the tokenizer: `{facts['digest']}`"
    return [*opening(facts, glance, "tokenizer_card.license"), "", digest]


def _decisions(facts: Facts) -> list[str]:
    reasoned = any(one["reason"] for one in facts["decisions"])
    columns: dict[str, Column] = {"setting": "name", "value": lambda one: code(one["value"])}
    columns |= {"why": lambda one: one["reason"] or "–"} if reasoned else {}
    none = "The profile gives no reasons; `[tokenizer_card.reasons]` is the place for them."
    return section("Decisions", listed(facts["decisions"], columns, (0, 1, 2)), "" if reasoned else none)


def _trained_on(facts: Facts) -> list[str]:
    if facts["balance"] is None:
        return []
    columns: dict[str, Column] = {
        **{"source": "source", "documents": "num_documents", "text": "num_bytes", "balanced share": "share"},
        "counted": lambda one: f"{one['factor']:.3g} times",
        "share in training": "measured_share",
    }
    how = f"Weighted by {facts['balance']}. *Share in training*: of the bytes of its pre-tokens, as counted."
    return section("Trained on", listed(facts["trained_on"], columns), how)


def _measured(facts: Facts) -> list[str]:
    lossy = any(row["unknown_share"] for row in facts["sources"])
    columns: dict[str, Column] = {
        "source": lambda row: "all" if row["source"] == ALL else row["source"],
        **{"bytes per token": "bytes_per_token", "tokens per word": "fertility"},
        "words kept whole": lambda row: percent(row["whole_share"], 1),
        "unused here": lambda row: percent(row["unused_share"], 1),
        **({"unknown": "unknown_share"} if lossy else {}),
    }
    note = (
        f"Measured on {TEXTS[facts['text']]}, before anything was encoded. A word is what Unicode's rules "
        "bound; in scripts without spaces it is a character. *Unused here*: ordinary tokens that do not "
        f"occur in what was measured. Gate: {facts['gate']}."
    )
    return section("Compression", listed(facts["sources"], columns), note)


def _languages(facts: Facts) -> list[str]:
    rows = [row for row in facts["parity"] if row["language"] != ALL and row["premium"] is not None]
    if not rows:
        return []
    columns: dict[str, Column] = {
        "language": "language",
        "premium": lambda row: f"{row['premium']:.2f}",
        "interval": lambda row: (
            "–"
            if None in (row["premium_low"], row["premium_high"])
            else "{premium_low:.2f}–{premium_high:.2f}".format(**row)
        ),
    }
    note = (
        f"How many tokens the same sentences take, over those of {rows[0]['reference']}, with the interval "
        "that holds 95 % of the bootstrap."
    )
    ordered = sorted(rows, key=lambda row: (-row["premium"], row["language"]))
    return section("Languages", listed(ordered, columns), note)


def _vocabulary(facts: Facts) -> list[str]:
    marks = ", ".join(f"{script} ({share:.0%} of tokens)" for script, share in facts["marks_apart"].items())
    shown, number = len(facts["suspects"]), facts["num_suspects"]
    of_these = f"; the first {shown:,}:" if shown < number else ":" if shown else ""
    lines = [
        f"- {number_of(facts['num_unused'], 'ordinary token')} unused in {_UNUSED_IN[facts['unused_in']]}, "
        f"{facts['num_unreachable']:,} that no text gives, {facts['num_duplicates']:,} whose text is that of "
        "another one",
        *([f"- Vowel signs and other marks are apart from their letters in {marks}"] if marks else []),
        f"- {number_of(number, 'suspect')}: tokens that a model would hardly see, though they are in the "
        f"vocabulary{of_these}",
    ]
    columns: dict[str, Column] = {
        "token": lambda one: code(one["text"]),
        "why": lambda one: _WHY[one["reason"]],
        "expected": lambda one: f"{one['expected']:,.0f}",
        **{"occurrences": "num_occurrences", "from": "source"},
        "as in": lambda one: code(one["context"] or one["example"] or "–"),
    }
    return section("Vocabulary", lines, listed(facts["suspects"], columns, (0, 1, 4, 5)) if shown else [])


def _probes(facts: Facts) -> list[str]:
    met = facts["num_probes"] - len(facts["probes"])
    told = f"{met:,} of {number_of(facts['num_probes'], 'expectation')} met."
    columns = {"group": "group", "probe": "probe", "expected": "expectation", "but": "remark"}
    unmet = listed(facts["probes"], columns, (0, 1, 2, 3)) if facts["probes"] else []
    return section("Probes", told, unmet)


def _special(facts: Facts) -> list[str]:
    names = [f"{code(name)} {token:,}" for name, token in facts["special_tokens"].items()]
    roles = ", ".join(f"{role} {code(name)}" for role, name in facts["roles"].items())
    unknown = facts["unknown_token"]
    lost = f"Text that is not in the vocabulary becomes {code(unknown or '')} and is lost"
    lines = [
        f"- {first_of(names, _SHOWN_SPECIALS)}; {facts['num_reserved']:,} reserved",
        *([f"- Roles: {roles}"] if roles else []),
        f"- {'Every text can be encoded' if unknown is None else lost}",
    ]
    return section("Special tokens", lines)


def _loading(facts: Facts) -> list[str]:
    examples: list[str | list[str]] = [
        f"`{HERE}` is the artifact's folder; `tokmill show` says where it lies."
    ]
    for library, text in blocks(facts["exports"]).items():
        examples += [f"### {library}", ["```python", *text.splitlines(), "```"]]
    left = [
        f"- {one['format']}: {cell(one[why])}"
        for why in ("not_possible", "differs")
        for one in facts["exports"]
        if one[why]
    ]
    return section("Loading", *examples, "What formats cannot say:" if left else "", left)


def blocks(exports: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return library → code for the exports that there are; tokmill first."""
    found = {"tokmill": _OWN}
    for export in (one for one in exports if one["files"]):
        for library, example in _CODE.get(export["format"], {}).items():
            folder = f"{HERE}/exports/{export['format']}"
            found.setdefault(library, example.replace("{folder}", folder).replace("{text}", TEXT))
    return found
