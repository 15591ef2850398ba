"""The section that shows other tokenizers side by side with the one that was audited.

It has what needs no other text: the tokens that they share, and the same probes. Compression on the same text
is `tasks.audit.comparing`.
"""

from collections.abc import Mapping, Sequence
from html import escape

import pyarrow as pa

from tokmill.tasks.audit.comparing import compare_vocabularies
from tokmill.tasks.audit.probes import probe
from tokmill.tasks.audit.report.markup import note, pieces, section, table
from tokmill.tasks.audit.report.reading import Row
from tokmill.tokenizer import Tokenizer

_VOCABULARIES = {
    "tokenizer": "tokenizer",
    "family": "family",
    "vocab_size": "ids",
    "num_shared": "shared tokens",
    "shared_share": "share of its own",
}


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
        *(_cuts(names, found) for found in rows if _differ(found)),
    )


def _rows(probed: Sequence[pa.Table]) -> list[tuple[Row, ...]]:
    """Return the rows of each probe that all tokenizers have: some are about their own special tokens."""
    by_name = [{(row["group"], row["probe"]): row for row in table.to_pylist()} for table in probed]
    shared = [key for key in by_name[0] if all(key in found for found in by_name)]
    return [tuple(found[key] for found in by_name) for key in shared]


def _numbers(rows: tuple[Row, ...]) -> Row:
    tokens = {str(place): row["num_tokens"] for place, row in enumerate(rows)}
    return {"probe": f"{rows[0]['group']}: {rows[0]['probe']}", **tokens}


def _differ(rows: tuple[Row, ...]) -> bool:
    return any(row["tokens"] != rows[0]["tokens"] for row in rows)


def _cuts(names: list[str], rows: tuple[Row, ...]) -> str:
    shown = "".join(
        f'<p><span class="remark">{escape(name)}</span> {pieces(row["tokens"] or [], row["ids"] or [])}</p>'
        for name, row in zip(names, rows, strict=True)
    )
    return (
        f"<details><summary>{escape(rows[0]['group'])}: {escape(rows[0]['probe'])}</summary>{shown}</details>"
    )
