"""`vocab_probes`: how a tokenizer treats texts that often go wrong, and whether that is as one would like.

An unmet expectation is not a fault by itself. Names of special tokens in a probe are text. A text that the
tokenizer refuses has no ids, its expectation is not met, and the remark says why.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tokmill.tasks.audit.params import OwnProbe
from tokmill.tasks.audit.probe_judgement import Encoded, Probe, Verdict
from tokmill.tasks.audit.probe_texts import number_probes, text_probes
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.errors import TokenizerError

__all__ = ["SCHEMA", "OwnProbe", "probe"]

_S = pa.string()
SCHEMA = pa.schema(
    [
        *(("probe", _S), ("group", _S), ("text", _S), ("expectation", _S)),
        *(("ids", pa.list_(pa.uint32())), ("tokens", pa.list_(_S)), ("num_tokens", pa.int64())),
        *(("met", pa.bool_()), ("remark", _S)),
    ]
)


def probe(tok: Tokenizer, own: Sequence[OwnProbe] = ()) -> pa.Table:
    """Return the table `vocab_probes`: ours, then the user's own.

    Args:
        tok: the tokenizer.
        own: probes of the profile.

    Raises:
        ValueError: two of the own probes have one name.
    """
    twice = [name for name, number in Counter(one.name for one in own).items() if number > 1]
    if twice:
        raise ValueError(f"probes: several are named {twice[0]!r}; give each its own name")
    probes = [*text_probes(tok), *number_probes(), *(one.to_probe() for one in own)]
    return pa.Table.from_pylist([_row(tok, one) for one in probes], SCHEMA)


def _row(tok: Tokenizer, one: Probe) -> dict[str, Any]:
    ids: list[int] = []
    try:
        found = Encoded.of(tok, one.text)
        ids, verdict = found.ids, one.judge(tok, found)
    except TokenizerError as error:
        verdict = Verdict(False, f"refused: {error}")
    return {
        "probe": one.name,
        "group": one.group,
        "text": one.text,
        "expectation": one.expectation,
        "ids": ids,
        "tokens": [tok.definition.model.readable(token) for token in ids],
        "num_tokens": len(ids),
        "met": None if one.expectation is None else verdict.met,
        "remark": verdict.remark,
    }
