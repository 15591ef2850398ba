"""Formats paths and numbers for people: sizes, counts, durations, and the key figures of an artifact.

A metric's name has its unit (`num_documents`, `text_bytes`, `bytes_per_token`), which decides its format.
"""

from collections.abc import Mapping
from pathlib import Path

from tokmill.tasks.core.markdown import number, percent
from tokmill.tasks.core.stage import Scalar

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHOWN = 3
# By kind, the metrics shown in one line; the first metrics of the record for other kinds. A tokenizer has one
# of num_merges, num_words, num_characters and num_pieces, by its family.
_KEY_METRICS = {
    "corpus": ("num_documents", "num_bytes", "num_shards"),
    "counts": ("num_pretokens", "num_distinct_by_source"),
    "balance": ("method", "num_capped"),
    "tokenizer": ("vocab_size", "num_merges", "num_words", "num_characters", "num_pieces"),
    "encoded": ("num_tokens", "num_documents"),
    "audit": ("bytes_per_token", "fertility", "max_premium"),
    "audit_shard": ("num_tokens", "num_documents"),
    "usage": ("bytes_per_token", "never_encoded_share"),
    "mixture": ("num_tokens", "limited_by"),
    "pack_plan": ("num_sequences", "num_padding_tokens"),
    "tokenizer_card": ("vocab_size", "num_suspects", "num_unmet_probes"),
    "card": ("mixture_bytes_per_token", "num_tokens", "num_sequences"),
    "packed": ("num_sequences", "padding_share"),
}
# Shown only if not 0, and near the front: a narrow terminal cuts the end off.
_LOST = ("unknown_share",)
_NEVER_ZERO = {
    "corpus": ("num_quarantined",),
    **dict.fromkeys(("audit", "audit_shard", "usage", "card", "sweep_cell"), _LOST),
}
# Not sizes, but how many of the 256 values are there.
_VALUES_OF_BYTES = {"num_distinct_bytes"}


def shown(path: Path) -> str:
    """Return a path relative to the working directory if it is below it, else absolute."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def size(num_bytes: float) -> str:
    """Return a size in binary units: `812 B`, `31.2 MiB`."""
    for unit in _BINARY_UNITS[:-1]:
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} {_BINARY_UNITS[-1]}"


def span(seconds: float) -> str:
    """Return a duration: `0.2 s`, `47 s`, `3 min 20 s`, `2 h 05 min`; `–` if the clock was set back."""
    if seconds < 0:
        return "–"
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def percentage(share: float, digits: int = 2) -> str:
    """Return a share in percent, with a space before the sign: `2.10 %`."""
    return percent(share, digits).replace("%", " %")


def labelled(name: str, value: Scalar) -> tuple[str, str]:
    """Return one metric for a table, its label and its value with the unit: `("documents", "1,932")`."""
    label = name.removeprefix("num_").replace("_", " ").replace(".", " of ")
    if isinstance(value, bool | str):
        return label, number(value)
    if name.endswith("_bytes") and name not in _VALUES_OF_BYTES:
        return label.removesuffix(" bytes"), size(value)
    return label, percentage(value) if "share" in name else number(value)


def figure(name: str, value: Scalar) -> str:
    """Return one metric with its unit: `1,932 documents`, `31.2 MiB text`, `4.31 bytes per token`."""
    label, shown = labelled(name, value)
    if value == 1:
        label = label.removesuffix("s")
    is_amount = name.startswith("num_") or name.endswith("_bytes") or "_per_" in name
    if is_amount and not isinstance(value, bool | str) and "share" not in name:
        return f"{shown} {label}".removesuffix(" bytes")
    return f"{label} {shown}"


def key_figures(kind: str, metrics: Mapping[str, Scalar]) -> str:
    """Return the most important metrics of an artifact of this kind, on one line; empty ones are left out."""
    names = [name for name in _KEY_METRICS.get(kind, ()) if metrics.get(name, "") != ""]
    names = names or list(metrics)[:_SHOWN]
    names[1:1] = [name for name in _NEVER_ZERO.get(kind, ()) if metrics.get(name) and name not in names]
    shown = " · ".join(figure(name, metrics[name]) for name in names)
    return f"{shown} · on held-out text" if kind == "audit" and metrics.get("text") == "held_out" else shown


def counted(number_of: int, word: str) -> str:
    """Return a number with its word: `1 shard`, `3 shards`."""
    return f"{number_of:,} {word}" if number_of == 1 else f"{number_of:,} {word}s"


def outcome_words(numbers: Mapping[str, int]) -> str:
    """Return the outcomes of some tasks: `made` if all were made, `3 made, 5 cached` if they differ."""
    present = {word: number for word, number in numbers.items() if number}
    if len(present) == 1:
        return next(iter(present))
    return ", ".join(f"{number} {word}" for word, number in present.items())
