"""sweep_cell: train one tokenizer of a sweep, and measure how it compresses text.

Text is measured by the counts of its pre-tokens, which were made once for all tokenizers that cut it alike:
each distinct pre-token is encoded once, so twenty tokenizers are measured in the time in which one would
encode the text. Parallel text is encoded line by line. The tokenizer lies in the artifact, in tokmill's own
format alone: it is a candidate, and a run with its settings publishes it with all exports.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from tokmill.tasks.core.errors import AuditError
from tokmill.tasks.core.stage import Outcome, Stage
from tokmill.tasks.formats.counts import Balance, Counts
from tokmill.tasks.formats.files.manifests import read_model, write_model
from tokmill.tasks.remote.location import located
from tokmill.tasks.sweep.training import train_together
from tokmill.tasks.train.stage import TrainParams

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

CELL_FILE = "cell.json"


class CellParams(TrainParams):
    """The tokenizer, and what its premiums are measured against."""

    reference: str | None = Field(
        default=None, description="The language of premiums; empty for the first parallel text."
    )

    def training(self) -> TrainParams:
        """The parameters of the tokenizer alone."""
        return TrainParams.model_validate(self.model_dump(exclude={"reference"}, exclude_unset=True))


class CellSource(BaseModel):
    """How the text of one source is encoded; see `vocab_sources`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    num_documents: int
    num_bytes: int
    num_tokens: int
    bytes_per_token: float | None
    unknown_share: float | None


class CellLanguage(BaseModel):
    """What parallel text costs in one language; see `vocab_parity`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    language: str
    num_tokens: int
    premium: float | None


class Cell(BaseModel):
    """The content of `cell.json`: one tokenizer of a sweep.

    Attributes:
        family: the tokenizer's family.
        temperature: T of the balance that it was trained with; None if another rule was used.
        vocab_size: the size that was asked for.
        num_ids: the size of the vocabulary; less if training was allowed to give less.
        sources: by source.
        num_bytes, num_tokens, bytes_per_token, unknown_share: of all sources together.
        num_used: tokens that occur in the text.
        keeps_text: whether text comes back as it was, unknown tokens aside: nothing normalizes it, and its
            tokens have all of it, spaces too.
        languages: by language of parallel text; empty if there is none.
        reference: the language of premiums.
        gini: of the languages' tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    temperature: float | None
    vocab_size: int
    num_ids: int
    sources: list[CellSource]
    num_bytes: int
    num_tokens: int
    bytes_per_token: float | None
    unknown_share: float | None
    num_used: int
    keeps_text: bool
    languages: list[CellLanguage]
    reference: str | None
    gini: float | None

    @classmethod
    def open(cls, path: Path) -> "Cell":
        """Read the cell in the directory `path`."""
        return read_model(path / CELL_FILE, cls, "cell of a sweep")

    @property
    def label(self) -> str:
        """The cell's name within its sweep: family, temperature and size."""
        return label_of(self.family, self.temperature, self.vocab_size)

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


def label_of(family: str, temperature: float | None, vocab_size: int) -> str:
    """Return what a tokenizer of a sweep is called."""
    return f"{curve_of(family, temperature)}-{vocab_size}"


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
    """Write `cell.json` and the tokenizer into `out`.

    Args:
        params: see `CellParams`.
        out: the artifact's directory.
        counts: the counts that the tokenizer is trained on.
        balance: the balance of that training.
        text: the counts of the text that it is measured on, cut alike.
        parallel: language and path of each parallel text.
        sizes: the sizes that are trained with this one, if it was not trained yet.

    Raises:
        TrainingError, BalanceError: see `tasks.train.learning.learn`.
        AuditError: parallel texts are not parallel, or no UTF-8.
        StoreError: an input is broken.
    """
    from tokmill.tasks.audit.parity import gini

    tok = train_together(params.training(), counts, balance, sizes or [params.vocab_size])
    tokens = _tokens_by_language(tok, list(parallel), params.reference)
    reference = (params.reference or next(iter(tokens))) if tokens else None
    cell = Cell(
        family=tok.family,
        temperature=Balance.open(balance).temperature,
        vocab_size=params.vocab_size,
        num_ids=tok.vocab_size,
        **_of_text(tok, Counts.open(text)),
        keeps_text=tok.definition.normalizer.name is None and tok.definition.decoder.name == "fuse",
        languages=_languages(tokens, reference),
        reference=reference,
        gini=gini(np.array(list(tokens.values()), np.int64)) if tokens else None,
    )
    write_model(out / CELL_FILE, cell)
    tok.save(out)
    return Outcome(metrics=_metrics(cell))


def _metrics(cell: Cell) -> dict[str, Any]:
    found = {
        "cell": cell.label,
        "bytes_per_token": cell.bytes_per_token,
        "unknown_share": cell.unknown_share,
        "max_premium": cell.max_premium,
        "num_tokens": cell.num_tokens,
        "num_bytes": cell.num_bytes,
    }
    return {name: value for name, value in found.items() if value is not None}


def _of_text(tok: "Tokenizer", counts: Counts) -> dict[str, Any]:
    """Return the figures of each source, and of all together."""
    from tokmill.tasks.audit.measurement import unknown_ids
    from tokmill.tasks.audit.sources import ratio
    from tokmill.tasks.audit.training_counts import occurrences_by_source

    unknown, occurring = unknown_ids(tok), occurrences_by_source(tok, counts)
    every = np.zeros(tok.vocab_size, np.uint64)
    sources = []
    for entry in counts.manifest.sources:
        found, statistics = occurring[entry.source], entry.statistics
        every += found
        sources.append(
            CellSource(
                source=entry.source,
                num_documents=statistics.num_documents,
                num_bytes=statistics.num_bytes,
                num_tokens=int(found.sum()),
                bytes_per_token=ratio(statistics.num_bytes, int(found.sum())),
                unknown_share=_share_of(unknown, found),
            )
        )
    num_bytes, num_tokens = sum(one.num_bytes for one in sources), int(every.sum())
    return {
        "sources": sources,
        "num_bytes": num_bytes,
        "num_tokens": num_tokens,
        "bytes_per_token": ratio(num_bytes, num_tokens),
        "unknown_share": _share_of(unknown, every),
        "num_used": int((every > 0).sum()),
    }


def _share_of(unknown: Sequence[int], occurring: "np.ndarray") -> float | None:
    from tokmill.tasks.audit.sources import ratio

    return ratio(int(occurring[unknown].sum()), int(occurring.sum())) if unknown else None


def _languages(tokens: Mapping[str, int], reference: str | None) -> list[CellLanguage]:
    from tokmill.tasks.audit.sources import ratio

    return [
        CellLanguage(language=language, num_tokens=number, premium=ratio(number, tokens[str(reference)]))
        for language, number in tokens.items()
    ]


def _tokens_by_language(
    tok: "Tokenizer", parallel: Sequence[Mapping[str, str]], reference: str | None
) -> dict[str, int]:
    """Return how many tokens the lines of each parallel text have."""
    from tokmill.tasks.audit.parity import check_parallel, read_parallel

    if reference is not None and not parallel:
        raise AuditError("audit.reference needs parallel text: name the files in audit.parallel")
    texts = read_parallel({one["language"]: located(one["path"]) for one in parallel})
    found = {
        language: len(tok.encode_buffers(*_buffer(lines), as_text=True).ids)
        for language, lines in texts.items()
    }
    if found:
        num_lines = {language: len(lines) for language, lines in texts.items()}
        check_parallel(num_lines, reference or next(iter(found)))
    return found


def _buffer(lines: Sequence[str]) -> "tuple[np.ndarray, np.ndarray]":
    """Return lines as a buffer: uint8 and int64 offsets, without their line ends."""
    data = [line.encode() for line in lines]
    ends = np.cumsum([0, *map(len, data)], dtype=np.int64)
    return np.frombuffer(b"".join(data), np.uint8), ends


SWEEP_CELL = Stage(verb="sweep_cell", task="cell", kind="sweep_cell", version=4, params=CellParams, run=run)


def cell_among(sizes: Sequence[int]) -> Stage[CellParams]:
    """Return `SWEEP_CELL` for a cell whose tokenizer is trained with those of other sizes."""
    return replace(SWEEP_CELL, run=partial(run, sizes=tuple(sizes)))
