"""What memory a training needs, said before any of it is taken.

Model. Training holds the distinct pre-tokens of the corpus and what its family knows of their places; it
cannot work from the disk. The need is linear in the number of pre-tokens, their bytes and characters, and the
tokens that are learned; `_NEEDS` has each family's rates, which were measured
(benchmarks/log/measurements.md, "memory of training"): the peak of a process that does nothing else is
between 0.7 and 1.5 times the estimate. That of a run holds up to `_RUN` besides.

A training that this machine cannot hold is refused, before the operating system would kill it. That says
nothing about the text.

How much memory this process can still get, before it asks for it.

On Linux it is what the kernel calls available (free, or in caches that can be dropped), and no more than
what the control group leaves: its limit without what its processes hold. Elsewhere it is the memory of the
machine. The figure is good for refusing what cannot fit; others may take the memory a moment later.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokmill.tasks.core.context import remark, total_memory
from tokmill.tasks.core.errors import MachineError
from tokmill.tasks.formats.counts import Balance, Counts
from tokmill.tasks.train.reading import TextSize, Weighted, largest_size

if TYPE_CHECKING:
    from tokmill.tasks.train.stage import TrainParams

_AVAILABLE = "MemAvailable:"
_GROUPS = (
    # files of control groups: the limit, the use, and what of the use is a cache of files
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


@dataclass(frozen=True)
class _Need:
    """Bytes of memory: of any training; per distinct pre-token, byte and character of these; per token."""

    least: int
    per_pretoken: float = 0
    per_byte: float = 0
    per_char: float = 0
    per_token: float = 1500

    def bytes_for(self, size: TextSize, vocab_size: int) -> int:
        of_text = self.per_byte * size.num_bytes + self.per_char * size.num_chars
        return int(self.least + self.per_pretoken * size.num_distinct + of_text + self.per_token * vocab_size)


_OF_BYTES = _Need(least=230 << 20, per_byte=7.3)
_OF_JOINING = _Need(least=240 << 20, per_byte=9, per_char=80)
_NEEDS: Final[Mapping[str, _Need]] = {
    "byte_bpe": _OF_BYTES,
    "char_bpe": _OF_JOINING,
    "word_bpe": _OF_JOINING,
    "wordpiece": _OF_JOINING,
    "char_bpe.sentences": _Need(least=240 << 20, per_byte=33, per_char=16),
    "unigram": _Need(least=360 << 20, per_byte=3, per_char=61),
    "unigram.sentences": _Need(least=360 << 20, per_byte=28, per_char=18),
    "longest_match": _OF_BYTES,
    "word_level": _Need(least=200 << 20, per_pretoken=120, per_byte=7),
    "character_level": _Need(least=220 << 20, per_byte=7, per_char=48),
}

_RUN: Final = 256 << 20
"""What the process of a run holds besides: Prefect, the store's catalog, the libraries of other stages."""


def needed_memory(params: "TrainParams", size: TextSize) -> int:
    """Return the bytes of memory that a process needs to train on so much text, about."""
    return _need(params).bytes_for(size, params.vocab_size)


def most_needed(params: "TrainParams", counts: Counts, balance: Balance | None) -> TextSize:
    """Return the largest size that the sum of counts may have, as far as the need depends on it."""
    return largest_size(counts, balance, chars=_need(params).per_char > 0)


def _need(params: "TrainParams") -> _Need:
    return _NEEDS[f"{params.family}.sentences" if params.mode == "sentencepiece" else params.family]


def memory_of(params: "TrainParams", known: Mapping[str, Path]) -> int | None:
    """Return the bytes of memory that a run holds in `train`, at most, about; None without counts.

    It is less if sources have pre-tokens in common, or rare ones are left out: only a training counts that.

    Args:
        params: see `TrainParams`.
        known: the inputs that exist. Without a balance all sources are trained on.

    Raises:
        StoreError: an artifact is broken.
    """
    if "counts" not in known:
        return None
    balance = Balance.open(known["balance"]) if "balance" in known else None
    return needed_memory(params, most_needed(params, Counts.open(known["counts"]), balance)) + _RUN


def fitting_size(params: "TrainParams", weighted: Weighted, largest: TextSize) -> TextSize:
    """Return the size of the counts that are trained on, or more, once this machine can surely train on them.

    They are only read for it if the largest size that they may have does not fit.

    Raises:
        MachineError: they need more memory than there is.
    """
    available = available_memory()
    size, needed = largest, needed_memory(params, largest)
    if needed > available and not weighted.is_plain:
        size = weighted.size()
        needed = needed_memory(params, size)
    remark(f"train needs about {_shown(needed)} of memory; {_shown(available)} are available")
    if needed > available:
        raise MachineError(
            f"train: {size.num_distinct:,} distinct pre-tokens of {_shown(size.num_bytes)} need about "
            f"{_shown(needed)} of memory (family='{params.family}', vocab_size={params.vocab_size}), and "
            f"{_shown(available)} are available; train on a larger machine, run with fewer --workers, or "
            f"leave out rare pre-tokens with min_pretoken_frequency={params.min_pretoken_frequency + 1}"
        )
    return size


def _shown(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"


def available_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that this process can still get, about."""
    found = [room for names in _GROUPS if (room := _room(groups, *names)) is not None]
    return max(0, min([_of_machine(proc), *found]))


def _of_machine(proc: Path) -> int:
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith(_AVAILABLE):
            return int(line.split()[1]) << 10
    return total_memory()


def _room(groups: Path, limit: str, used: str, statistics: str, cached: str) -> int | None:
    """Return what a control group leaves; None if there is no limit."""
    most, taken = (_text(groups / name).strip() for name in (limit, used))
    if not most.isdecimal() or not taken.isdecimal():
        return None
    entries = dict(line.split(" ", 1) for line in _text(groups / statistics).splitlines() if " " in line)
    return int(most) - int(taken) + int(entries.get(cached, 0))


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii")
    except OSError:
        return ""
