"""sweep_cell: train one tokenizer of a sweep, and measure how it compresses text.

Text is measured by the counts of its pre-tokens, which were made once for all tokenizers that cut it alike.
The sizes of a curve are trained together: the first cell trains them all, the others take theirs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from tokmill.tasks.core.errors import AuditError
from tokmill.tasks.core.stage import Outcome, Stage
from tokmill.tasks.formats.counts import Balance, Counts
from tokmill.tasks.formats.files.manifests import Entry, read_model, write_model
from tokmill.tasks.remote.location import located
from tokmill.tasks.train.learning import learn
from tokmill.tasks.train.stage import TrainParams

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

CELL_FILE = "cell.json"
_KEPT = 16  # curves whose tokenizers wait in memory; what is gone is trained again when it is wanted


class CellParams(TrainParams):
    """The tokenizer, and what its premiums are measured against."""

    reference: str | None = Field(
        default=None, description="The language of premiums; empty for the first parallel text."
    )

    def training(self) -> TrainParams:
        """The parameters of the tokenizer alone."""
        return TrainParams.model_validate(self.model_dump(exclude={"reference"}, exclude_unset=True))


class CellSource(Entry):
    """How the text of one source is encoded; see `vocab_sources`."""

    source: str
    num_documents: int
    num_bytes: int
    num_tokens: int
    bytes_per_token: float | None
    unknown_share: float | None


class CellLanguage(Entry):
    """What parallel text costs in one language; see `vocab_parity`."""

    language: str
    num_tokens: int
    premium: float | None


class Cell(Entry):
    """The content of `cell.json`: one tokenizer of a sweep."""

    family: str
    temperature: float | None  # of the balance that it was trained with; None if another rule was used
    vocab_size: int  # as asked for
    num_ids: int  # less if training was allowed to give less
    sources: list[CellSource]
    num_bytes: int  # this and the next three of all sources together
    num_tokens: int
    bytes_per_token: float | None
    unknown_share: float | None
    num_used: int  # tokens that occur in the text
    keeps_text: bool
    """Whether text comes back as it was, unknown tokens aside: nothing normalizes it, and its tokens have all
    of it, spaces too."""
    languages: list[CellLanguage]  # of parallel text; empty if there is none
    reference: str | None  # the language of premiums
    gini: float | None  # of the languages' tokens

    @classmethod
    def open(cls, path: Path) -> "Cell":
        """Read the cell in the directory `path`."""
        return read_model(path / CELL_FILE, cls, "cell of a sweep")

    @property
    def label(self) -> str:
        """The cell's name within its sweep: family, temperature and size."""
        return f"{self.curve}-{self.vocab_size}"

    @property
    def curve(self) -> str:
        """What tokenizers that differ in size alone are called."""
        return curve_of(self.family, self.temperature)

    @property
    def lossy(self) -> bool:
        """Whether some of the text becomes unknown tokens, or may come back changed."""
        return bool(self.unknown_share) or not self.keeps_text

    @property
    def max_premium(self) -> float | None:
        """The greatest premium of a language; None without parallel text."""
        return max((one.premium for one in self.languages if one.premium is not None), default=None)

    @property
    def dearest(self) -> str | None:
        """The language with the greatest premium."""
        return next((one.language for one in self.languages if one.premium == self.max_premium), None)

    @property
    def min_bytes_per_token(self) -> float | None:
        """Bytes per token of the source that is compressed least."""
        return min(
            (one.bytes_per_token for one in self.sources if one.bytes_per_token is not None), default=None
        )


def curve_of(family: str, temperature: float | None) -> str:
    """Return what tokenizers that differ in size alone are called."""
    return family if temperature is None else f"{family}-T{temperature_text(temperature)}"


def temperature_text(temperature: float) -> str:
    """Return a temperature in as few digits as tell it from every other."""
    short = f"{temperature:g}"
    return short if float(short) == temperature else repr(temperature)


def run(
    params: CellParams,
    *,
    out: Path,
    counts: Path,
    balance: Path,
    text: Path,
    parallel: Iterable[Mapping[str, str]] = (),
    sizes: Sequence[int] = (),
) -> Outcome:
    """Write `cell.json` and the tokenizer, measured on the counts `text` and on parallel text, into `out`.

    `sizes` are those that are trained with this one, if it was not trained yet.
    """
    from tokmill.tasks.audit.parity import gini
    from tokmill.tasks.audit.sources import ratio

    training = params.training()
    curve = _curve(training.model_dump_json(exclude={"vocab_size"}), counts, balance)
    tok = curve.take(training, counts, balance, sizes or [params.vocab_size])
    tokens = _tokens_by_language(tok, list(parallel), params.reference)
    reference = (params.reference or next(iter(tokens))) if tokens else None
    cell = Cell(
        family=tok.family,
        temperature=Balance.open(balance).temperature,
        vocab_size=params.vocab_size,
        num_ids=tok.vocab_size,
        **_of_text(tok, Counts.open(text)),
        keeps_text=tok.definition.normalizer.name is None and tok.definition.decoder.name == "fuse",
        languages=[
            CellLanguage(language=language, num_tokens=number, premium=ratio(number, tokens[str(reference)]))
            for language, number in tokens.items()
        ],
        reference=reference,
        gini=gini(np.array(list(tokens.values()), np.int64)) if tokens else None,
    )
    write_model(out / CELL_FILE, cell)
    tok.save(out)
    names = ("bytes_per_token", "unknown_share", "max_premium", "num_tokens", "num_bytes")
    found = {"cell": cell.label, **{name: getattr(cell, name) for name in names}}
    return Outcome(metrics={name: value for name, value in found.items() if value is not None})


def _of_text(tok: "Tokenizer", counts: Counts) -> dict[str, Any]:
    from tokmill.tasks.audit.measurement import unknown_ids
    from tokmill.tasks.audit.sources import ratio
    from tokmill.tasks.audit.training_counts import occurrences_by_source

    unknown, occurring = unknown_ids(tok), occurrences_by_source(tok, counts)
    every = sum(occurring.values(), np.zeros(tok.vocab_size, np.uint64))

    def figures(num_bytes: int, found: np.ndarray) -> dict[str, Any]:
        num_tokens = int(found.sum())
        return {
            "num_bytes": num_bytes,
            "num_tokens": num_tokens,
            "bytes_per_token": ratio(num_bytes, num_tokens),
            "unknown_share": ratio(int(found[unknown].sum()), num_tokens) if unknown else None,
        }

    sources = [
        CellSource(
            source=entry.source,
            num_documents=entry.statistics.num_documents,
            **figures(entry.statistics.num_bytes, occurring[entry.source]),
        )
        for entry in counts.manifest.sources
    ]
    total = figures(sum(one.num_bytes for one in sources), every)
    return {"sources": sources, **total, "num_used": int((every > 0).sum())}


def _tokens_by_language(
    tok: "Tokenizer", parallel: Sequence[Mapping[str, str]], reference: str | None
) -> dict[str, int]:
    """Return how many tokens the lines of each parallel text have."""
    from tokmill.tasks.audit.parity import check_parallel, read_parallel

    if reference is not None and not parallel:
        raise AuditError("audit.reference needs parallel text: name the files in audit.parallel")
    texts = read_parallel({one["language"]: located(one["path"]) for one in parallel})
    found = {language: len(tok.encode_batch(lines, as_text=True).ids) for language, lines in texts.items()}
    if found:
        num_lines = {language: len(lines) for language, lines in texts.items()}
        check_parallel(num_lines, reference or next(iter(found)))
    return found


@dataclass
class _Curve:
    """Tokenizers by size that nobody has taken yet; the lock is held while they are trained."""

    lock: Lock = field(default_factory=Lock)
    waiting: "dict[int, Tokenizer]" = field(default_factory=dict)

    def take(self, params: TrainParams, counts: Path, balance: Path, sizes: Sequence[int]) -> "Tokenizer":
        with self.lock:
            if params.vocab_size not in self.waiting:
                learned = learn(params, counts, balance, sizes)
                self.waiting.update(zip(sizes, learned.tokenizers, strict=True))
            return self.waiting.pop(params.vocab_size)


@lru_cache(maxsize=_KEPT)
def _curve(settings: str, counts: Path, balance: Path) -> _Curve:
    return _Curve()


SWEEP_CELL = Stage(verb="sweep_cell", task="cell", kind="sweep_cell", version=4, params=CellParams, run=run)


def cell_among(sizes: Sequence[int]) -> Stage[CellParams]:
    """Return `SWEEP_CELL` for a cell whose tokenizer is trained with those of other sizes."""
    return replace(SWEEP_CELL, run=partial(run, sizes=tuple(sizes)))
