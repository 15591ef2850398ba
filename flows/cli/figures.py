"""Numbers as people read them: sizes, counts, durations, and the few figures that tell of an artifact.

A metric's name carries its unit (`num_documents`, `text_bytes`, `bytes_per_token`), so its form follows
from its name.
"""

from collections.abc import Mapping

from tasks.stage import Scalar

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHOWN = 3


def size(num_bytes: float) -> str:
    """Return a size in binary units: `812 B`, `31.2 MiB`."""
    for unit in _BINARY_UNITS[:-1]:
        if abs(num_bytes) < 1024:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} {_BINARY_UNITS[-1]}"


def span(seconds: float) -> str:
    """Return a duration: `0.2 s`, `47 s`, `3 min 20 s`, `2 h 05 min`."""
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def number(value: Scalar) -> str:
    """Return a value: whole numbers with separators, others with four significant digits, text as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else value


def figure(name: str, value: Scalar) -> str:
    """Return one metric with its unit: `1,932 documents`, `31.2 MiB text`, `4.31 bytes per token`."""
    words = name.replace("_", " ")
    if isinstance(value, bool | str):
        return f"{words} {number(value)}"
    if name.startswith("num_") and not name.endswith("_bytes"):
        return f"{number(value)} {words.removeprefix('num ')}"
    if name.endswith("_bytes"):
        return f"{size(value)} {words.removeprefix('num ').removesuffix(' bytes')}".removesuffix(" bytes")
    if "_per_" in name:
        return f"{number(value)} {words}"
    return f"{words} {number(value)}"


def key_figures(metrics: Mapping[str, Scalar], shown: int = _SHOWN) -> str:
    """Return the first few metrics on one line; a stage lists the telling ones first."""
    return " · ".join(figure(name, value) for name, value in list(metrics.items())[:shown])


def outcome_words(numbers: Mapping[str, int]) -> str:
    """Return what became of some tasks: `made` where all were, `3 made, 5 cached` where they differ."""
    present = {word: number for word, number in numbers.items() if number}
    if len(present) == 1:
        return next(iter(present))
    return ", ".join(f"{number} {word}" for word, number in present.items())
