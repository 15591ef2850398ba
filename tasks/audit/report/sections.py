"""The sections of the page that need no JavaScript: charts and tables, each from one or two tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

import pyarrow as pa

from tokmill.tasks.audit.comparison import compare_vocabularies
from tokmill.tasks.audit.gates import not_passed
from tokmill.tasks.audit.probes import probe
from tokmill.tasks.audit.report.tables import AGREEMENT, LEAST, Row, Tables, source_name
from tokmill.tasks.audit.summary import TEXTS
from tokmill.tasks.core.markdown import number
from tokmill.tasks.pages.page import gap, note, pieces, section, table
from tokmill.tokenizer import Tokenizer

MAX_SUSPECTS = 200
_SOURCES = {
    "source": "source",
    "num_documents": "documents",
    "num_bytes": "bytes",
    "num_tokens": "tokens",
    "bytes_per_token": "bytes per token",
    "bytes_per_token_error": "± (95 %)",
    "chars_per_token": "characters per token",
    "fertility": "tokens per word",
    "whole_share": "words kept whole",
    "unknown_share": "unknown",
    "fallback_share": "parts of characters",
    "tokens_50": "tokens for 50 %",
    "tokens_90": "90 %",
    "tokens_99": "99 %",
    "unused_share": "tokens unused here",
}
_PARITY = {
    "language": "language",
    "num_tokens": "tokens",
    "premium": "premium",
    "premium_low": "from",
    "premium_high": "to",
    "premium_median": "median of lines",
    "unknown_share": "unknown",
}
_ENTROPY = {
    "source": "source",
    "num_tokens": "tokens",
    "shannon_efficiency": "Shannon efficiency",
    "renyi_efficiency": "Rényi efficiency (α = 2.5)",
    "unigram_bits_per_byte": "bits per byte, unigram",
    "trigram_bits_per_byte": "bits per byte, trigram",
    "normalized_length": "length against reference",
}
_TRIPS = {
    "source": "source",
    "num_documents": "documents",
    "num_changed": "changed",
    "changed_share": "share changed",
    "num_unstable": "unstable",
    "example": "example",
}
_SUSPECTS = {
    "rank": "rank",
    "token_id": "id",
    "text": "token",
    "reason": "reason",
    "score": "score",
    "num_training": "in training",
    "num_occurrences": "occurrences",
    "expected": "expected",
    "source": "source",
    "example": "training pre-token",
    "context": "first place",
}
_LEARNED = {"indicator": "indicator", "indicator_rank": "its rank"}
_AGREE = {
    "first": "first",
    "num_both": "in both",
    "share": "share",
    "rank_correlation": "correlation of ranks (all suspects)",
}
_LEAST = {
    "rank": "rank",
    "token_id": "id",
    "text": "token",
    "kind": "kind",
    "indicator": "indicator",
    "suspect_rank": "rank as suspect",
    "num_occurrences": "occurrences",
}

Pictures = Mapping[str, str]
"""SVG by name of the chart."""
_VOCABULARIES = {
    "tokenizer": "tokenizer",
    "family": "family",
    "vocab_size": "ids",
    "num_shared": "shared tokens",
    "shared_share": "share of its own",
}


def overview(gate: str, tables: Tables) -> str:
    """Return the gate's verdict and its limits."""
    state = "failed" if not_passed(gate) else "passed" if gate == "passed" else "none"
    rows = tables.rows("vocab_gates")
    columns = {name: name.replace("_", " ") for name in (rows[0] if rows else {})}
    limits = table("Limits of the gate", rows, columns) if rows else note("No limit is set.")
    return section("gate", "Gate", f'<p class="gate {state}">Gate: {escape(gate)}</p>', limits)


def vocabulary(tables: Tables, pictures: Pictures) -> str:
    """Return scripts and kinds of the tokens."""
    kinds = Counter(tables.column("vocab_tokens", "kind"))
    rows: list[Row] = [{"kind": kind, "tokens": count} for kind, count in kinds.most_common()]
    return section(
        "scripts",
        "Scripts and kinds of tokens",
        _figures(pictures, "scripts"),
        table("Tokens by kind", rows, {"kind": "kind", "tokens": "tokens"}),
    )


def sources(tables: Tables, pictures: Pictures) -> str:
    """Return how each source is encoded."""
    rows = tables.rows("vocab_sources")
    text = TEXTS[rows[0]["text"]]
    named = [{**row, "source": source_name(row["source"])} for row in rows]
    return section(
        "sources",
        "Sources and languages",
        note(f"Measured on {text}. Words are those of Unicode's word boundaries."),
        _figures(pictures, "fertility", "bytes-per-token"),
        table("Figures by source", named, _SOURCES),
    )


def parity(tables: Tables, pictures: Pictures) -> str:
    """Return what the same sentences cost in each language."""
    rows = tables.rows("vocab_parity")
    languages = [row for row in rows if row.get("premium") is not None]
    if not languages:
        why = f"{rows[0]['reference']} has no tokens" if rows else "No parallel text was given"
        return section("premium", "Premium", gap(f"{why}, so premiums are not known."))
    if len(languages) == 1:
        alone = (
            f"The parallel text has one language alone, {languages[0]['language']}, and nothing to compare."
        )
        return section("premium", "Premium", gap(alone))
    gini = next((row["gini"] for row in rows if row.get("gini") is not None), None)
    return section(
        "premium",
        "Premium of languages",
        note(
            f"Tokens for the same {languages[0]['num_lines']:,} lines over those of "
            f"{languages[0]['reference']}; intervals by bootstrap. "
            f"Gini coefficient of all languages: {number(gini)}."
        ),
        _figures(pictures, "premium"),
        table("Premium by language", sorted(languages, key=lambda row: -row["premium"]), _PARITY),
    )


def curves(tables: Tables, pictures: Pictures) -> str:
    """Return the curves, and how evenly the vocabulary is used."""
    parts = [_figures(pictures, "lengths", "frequencies")]
    for name, caption, columns in (
        ("vocab_entropy", "Use of the vocabulary", _ENTROPY),
        ("vocab_roundtrip", "Round trips: documents whose ids decode to another text", _TRIPS),
    ):
        rows = [{**row, "source": source_name(row["source"])} for row in tables.rows(name)]
        parts.append(table(caption, rows, columns))
    return section("curves", "Distributions", *parts)


def suspects(tables: Tables) -> str:
    """Return the most suspicious tokens, beside a model's embeddings if some were given."""
    if not tables.has("vocab_suspects"):
        none = "No token is a suspect: all occur about as often in what was encoded as is to be expected."
        unknown = "Nothing was encoded since this audit, so it is not known which tokens are suspects."
        return section("suspects", "Suspects", gap(none if "vocab_suspects" in tables.tables else unknown))
    rows, number_of = tables.rows("vocab_suspects", MAX_SUSPECTS), len(tables.tables["vocab_suspects"])
    columns = _SUSPECTS | (_LEARNED if tables.has(LEAST) else {})
    return section(
        "suspects",
        "Suspects",
        note(
            f"Tokens that a model would hardly ever see: the first {len(rows):,} of {number_of:,}. "
            "The pre-token is the most frequent one of the training text that holds the token; the place is "
            "in what was encoded. A dash: there is none."
        ),
        table("Suspects, the most suspicious first", rows, columns),
        *_learned(tables),
    )


def _learned(tables: Tables) -> list[str]:
    """Return what a model has learned least, and how far that agrees with the suspects."""
    if not tables.has(LEAST):
        return []
    told = (
        "The indicator says how little a model has learned of a token, the lower the less: the length of its "
        "row in the input embeddings, or, where input and output are one matrix, its distance from the rows "
        "of ids that were never used (Land and Bartolo 2024)."
    )
    compared = tables.rows(AGREEMENT)
    caption = "The first suspects among as many of the lowest indicators"
    few = gap("There are fewer than 50 suspects, so they are not compared as a whole.")
    agreement = table(caption, compared, _AGREE) if compared else few
    least = table("Tokens that the model has learned least", tables.rows(LEAST), _LEAST)
    return [note(told), agreement, least]


def probes(tables: Tables) -> str:
    """Return the probes as coloured tokens, by group."""
    groups = [
        f"<details open><summary>{escape(group)}</summary>{''.join(map(_probe, rows))}</details>"
        for group, rows in groupby(tables.rows("vocab_probes"), key=lambda row: str(row["group"]))
    ]
    return section(
        "probes",
        "Probes",
        note("Examples and edge cases: each token in a colour of its own, and the ids."),
        *groups,
    )


def _probe(row: Row) -> str:
    mark = "" if row.get("met") is None else "met" if row["met"] else "missed"
    said = f'<span class="{mark}">{mark}</span>' if mark else ""
    remark = f' <span class="remark">{escape(row["remark"])}</span>' if row.get("remark") else ""
    tokens = f"{row['num_tokens']} token{'s' * (row['num_tokens'] != 1)}"
    return (
        f'<div class="probe"><p>{escape(row["probe"])} <span class="remark">{tokens}</span> {said}{remark}'
        "</p>"
        f"{pieces(row['tokens'], row['ids'])}"
        f'<p class="ids">{" ".join(map(str, row["ids"]))}</p></div>'
    )


def _figures(pictures: Pictures, *names: str) -> str:
    drawn = "".join(f"<figure>{pictures[name]}</figure>" for name in names if name in pictures)
    return f'<div class="figures">{drawn}</div>' if drawn else gap("There is nothing to draw here.")


def comparison(tokenizers: Mapping[str, Tokenizer]) -> str:
    """Return the section.

    Args:
        tokenizers: by name, the one that was audited first.
    """
    names, rows = list(tokenizers), _rows([probe(tok) for tok in tokenizers.values()])
    columns = {"probe": "probe", **{str(place): f"{name}: tokens" for place, name in enumerate(names)}}
    return section(
        "compared",
        "Side by side",
        table(
            f"Vocabularies, and what they share with {names[0]}",
            compare_vocabularies(tokenizers),
            _VOCABULARIES,
        ),
        table("Tokens of the probes", map(_numbers, rows), columns),
        note("Probes that they cut differently:"),
        *(_cuts(names, found) for found in rows if any(row["tokens"] != found[0]["tokens"] for row in found)),
    )


def _rows(probed: Sequence[pa.Table]) -> list[tuple[Row, ...]]:
    """Return the rows of each probe that all tokenizers have: some are about their own special tokens."""
    by_name = [{(row["group"], row["probe"]): row for row in table.to_pylist()} for table in probed]
    shared = [key for key in by_name[0] if all(key in found for found in by_name)]
    return [tuple(found[key] for found in by_name) for key in shared]


def _numbers(rows: tuple[Row, ...]) -> Row:
    tokens = {str(place): row["num_tokens"] for place, row in enumerate(rows)}
    return {"probe": f"{rows[0]['group']}: {rows[0]['probe']}", **tokens}


def _cuts(names: list[str], rows: tuple[Row, ...]) -> str:
    shown = "".join(
        f'<p><span class="remark">{escape(name)}</span> {pieces(row["tokens"] or [], row["ids"] or [])}</p>'
        for name, row in zip(names, rows, strict=True)
    )
    return (
        f"<details><summary>{escape(rows[0]['group'])}: {escape(rows[0]['probe'])}</summary>{shown}</details>"
    )
