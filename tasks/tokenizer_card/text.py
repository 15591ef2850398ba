"""A tokenizer's card as Markdown. Every number is one of `TokenizerCard`; this module only lays them out.

How to load a tokenizer's exports in the libraries that read them: code that can be copied.

A test runs each block and compares its ids with those of the tokenizer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.audit.summary import TEXTS
from tokmill.tasks.card.words import (
    code,
    front_matter,
    license_line,
    number_of,
    ratio,
    size,
)
from tokmill.tasks.core.markdown import cell, percent, table
from tokmill.tasks.tokenizer_card.facts import Export, Suspect, TokenizerCard
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


def to_markdown(card: TokenizerCard) -> str:
    """The card as a Markdown document."""
    sections = [
        _opening(card),
        _decisions(card),
        _trained_on(card),
        _measured(card),
        _languages(card),
        _vocabulary(card),
        _probes(card),
        _special(card),
        _loading(card),
    ]
    lines = (line for section in sections if section for line in [*section, ""])
    return "\n".join([*_front_matter(card), *lines]).rstrip("\n") + "\n"


def _front_matter(card: TokenizerCard) -> list[str]:
    family, readable = card.family.replace("_", "-"), {one.format for one in card.exports if one.files}
    fields = {
        "pretty_name": card.title,
        "language": card.languages,
        "library_name": "transformers" if "huggingface" in readable else "tokmill",
        "tags": ["tokmill", "tokenizer", family, *card.tags],
    }
    return front_matter(fields, card.license)


def _opening(card: TokenizerCard) -> list[str]:
    overall = _overall(card)
    figures = "".join(f", {value:,} {name.removeprefix('num_')}" for name, value in card.figures.items())
    glance = (
        f"**{find_family(card.family).title}**, {_ORIGINS[card.origin]}: **{card.vocab_size:,} tokens**"
        f"{figures}; **{ratio(overall.get('bytes_per_token'))} bytes per token** of {TEXTS[card.text]}."
    )
    lost = overall.get("unknown_share")
    glance += f" **It loses text**: {percent(lost)} of these tokens are unknown." if lost else ""
    lines = [f"# {card.title}", "", glance]
    lines += ["", card.description] if card.description else []
    lines += ["", license_line(card.license, "tokenizer_card.license")]
    return [*lines, "", f"Content digest of the tokenizer: `{card.digest}`"]


def _overall(card: TokenizerCard) -> Mapping[str, Any]:
    """The audit's row of all sources, or that of the only one."""
    return next(
        (row for row in card.sources if row["source"] == ALL), card.sources[-1] if card.sources else {}
    )


def _decisions(card: TokenizerCard) -> list[str]:
    reasoned = any(one.reason for one in card.decisions)
    head = ["setting", "value", "why"] if reasoned else ["setting", "value"]
    rows = [[one.name, code(one.value), *([one.reason or "–"] if reasoned else [])] for one in card.decisions]
    lines = ["## Decisions", "", *table(head, rows, left=(0, 1, 2))]
    if not reasoned:
        lines += ["", "The profile gives no reasons; `[tokenizer_card.reasons]` is the place for them."]
    return lines


def _trained_on(card: TokenizerCard) -> list[str]:
    if card.balance is None:
        return []
    head = ["source", "documents", "text", "balanced share", "counted", "share in training"]
    rows = [
        [
            one.source,
            f"{one.num_documents:,}",
            size(one.num_bytes),
            percent(one.share),
            f"{one.factor:.3g} times",
            percent(one.measured_share),
        ]
        for one in card.trained_on
    ]
    how = f"Weighted by {card.balance}. *Share in training*: of the bytes of its pre-tokens, as counted."
    return ["## Trained on", "", *table(head, rows), "", how]


def _measured(card: TokenizerCard) -> list[str]:
    """The audit's rows, all sources last."""
    lossy = any(row["unknown_share"] for row in card.sources)
    head = ["source", "bytes per token", "tokens per word", "words kept whole", "unused here"]
    head += ["unknown"] if lossy else []
    rows = [
        [
            "all" if row["source"] == ALL else row["source"],
            ratio(row["bytes_per_token"]),
            ratio(row["fertility"]),
            percent(row["whole_share"], 1),
            percent(row["unused_share"], 1),
            *([percent(row["unknown_share"])] if lossy else []),
        ]
        for row in card.sources
    ]
    note = (
        f"Measured on {TEXTS[card.text]}, before anything was encoded. A word is what Unicode's rules bound; "
        "in scripts without spaces it is a character. *Unused here*: ordinary tokens that do not occur in "
        f"what was measured. Gate: {card.gate}."
    )
    return ["## Compression", "", *table(head, rows), "", note]


def _languages(card: TokenizerCard) -> list[str]:
    rows = [row for row in card.parity if row["language"] != ALL and row["premium"] is not None]
    if not rows:
        return []
    ordered = sorted(rows, key=lambda row: (-row["premium"], row["language"]))
    shown = [
        [row["language"], f"{row['premium']:.2f}", _interval(row["premium_low"], row["premium_high"])]
        for row in ordered
    ]
    reference = rows[0]["reference"]
    note = (
        f"How many tokens the same sentences take, over those of {reference}, with the interval that holds "
        "95 % of the bootstrap."
    )
    return ["## Languages", "", *table(("language", "premium", "interval"), shown), "", note]


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{low:.2f}–{high:.2f}"


def _vocabulary(card: TokenizerCard) -> list[str]:
    marks = ", ".join(f"{script} ({share:.0%} of tokens)" for script, share in card.marks_apart.items())
    lines = [
        "## Vocabulary",
        "",
        f"- {number_of(card.num_unused, 'ordinary token')} unused in {_UNUSED_IN[card.unused_in]}, "
        f"{card.num_unreachable:,} that no text gives, {card.num_duplicates:,} whose text is that of another "
        "one",
        *([f"- Vowel signs and other marks are apart from their letters in {marks}"] if marks else []),
        f"- {number_of(card.num_suspects, 'suspect')}: tokens that a model would hardly see, though they are "
        f"in the vocabulary{_of_these(card)}",
    ]
    return [*lines, "", *_suspects(card.suspects)] if card.suspects else lines


def _of_these(card: TokenizerCard) -> str:
    shown = len(card.suspects)
    return f"; the first {shown:,}:" if shown < card.num_suspects else (":" if shown else "")


def _suspects(suspects: Iterable[Suspect]) -> list[str]:
    rows = [
        [
            code(one.text),
            _WHY[one.reason],
            f"{one.expected:,.0f}",
            f"{one.num_occurrences:,}",
            one.source or "–",
            code(one.context or one.example or "–"),
        ]
        for one in suspects
    ]
    return table(("token", "why", "expected", "occurrences", "from", "as in"), rows, left=(0, 1, 4, 5))


def _probes(card: TokenizerCard) -> list[str]:
    met = card.num_probes - len(card.probes)
    lines = ["## Probes", "", f"{met:,} of {number_of(card.num_probes, 'expectation')} met."]
    if not card.probes:
        return lines
    rows = [[row["group"], row["probe"], row["expectation"], row["remark"]] for row in card.probes]
    return [*lines, "", *table(("group", "probe", "expected", "but"), rows, left=(0, 1, 2, 3))]


def _special(card: TokenizerCard) -> list[str]:
    names = list(card.special_tokens.items())
    more = len(names) - _SHOWN_SPECIALS
    named = ", ".join(f"{code(name)} {token:,}" for name, token in names[:_SHOWN_SPECIALS]) or "none"
    roles = ", ".join(f"{role} {code(name)}" for role, name in card.roles.items())
    unknown = card.unknown_token
    covered = (
        "Every text can be encoded"
        if unknown is None
        else f"Text that is not in the vocabulary becomes {code(unknown)} and is lost"
    )
    return [
        "## Special tokens",
        "",
        f"- {named}{f' and {more:,} more' if more > 0 else ''}; {card.num_reserved:,} reserved",
        *([f"- Roles: {roles}"] if roles else []),
        f"- {covered}",
    ]


def _loading(card: TokenizerCard) -> list[str]:
    lines = ["## Loading", "", f"`{HERE}` is the artifact's folder; `tokmill show` says where it lies."]
    for library, text in blocks(card.exports).items():
        lines += ["", f"### {library}", "", "```python", *text.splitlines(), "```"]
    left = [f"- {one.format}: {cell(one.not_possible)}" for one in card.exports if one.not_possible]
    left += [f"- {one.format}: {cell(one.differs)}" for one in card.exports if one.differs]
    return [*lines, "", "What formats cannot say:", "", *left] if left else lines


def blocks(exports: Sequence[Export]) -> dict[str, str]:
    """Return library → code for the exports that there are; tokmill first."""
    found = {"tokmill": _OWN}
    for export in exports:
        for library, example in _CODE.get(export.format, {}).items() if export.files else ():
            folder = f"{HERE}/exports/{export.format}"
            found.setdefault(library, example.replace("{folder}", folder).replace("{text}", TEXT))
    return found
