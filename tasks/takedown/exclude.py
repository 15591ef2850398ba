"""Exclude: write a mixture without some documents, so that it can be packed again.

All other rows keep their order, nothing is drawn instead, and the table of shares scales the requests to the
remaining tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.core.stage import Account, Outcome, Params, Scalar, Stage, Unit
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.mixture import MixedSource, Mixture, MixtureManifest, Plan, ShareTable, write_plan
from tokmill.tasks.formats.packed.manifest import ExcludedDocuments, in_order
from tokmill.tasks.store import NOT_IN_FINGERPRINT
from tokmill.tasks.store.record import MOST_REASON_CHARS
from tokmill.tasks.tracing.places import DocumentSet, places_in_encoded, places_of


class TakedownParams(Params):
    """Of both ways of a takedown; the documents are an input, and so no parameter."""

    reason: str = Field(
        default="",
        max_length=MOST_REASON_CHARS,
        description="Why they are taken down, for the record; of the same request it is the first one's.",
        json_schema_extra=NOT_IN_FINGERPRINT,
    )


def run(
    params: TakedownParams,
    *,
    out: Path,
    mixture: Path,
    encoded: Path,
    shards: Sequence[Path],
    documents: Sequence[Mapping[str, Any]],
) -> Outcome:
    """Write the mixture without `documents`, the fields of a `TakenDocument` each, in any order."""
    before = Mixture.open(mixture)
    taken = ExcludedDocuments(documents=in_order(documents))
    places = places_in_encoded(Encoded.open(encoded), shards, places_of(taken.documents))
    left_out = DocumentSet(before.sources, places)
    exclusion = _Exclusion(before)
    with write_plan(out) as append:
        for plan in before.batches():
            excluded = left_out.among(plan.source, plan.shard, plan.document)
            exclusion.add(plan, excluded)
            append(Plan(**{name: values[~excluded] for name, values in plan.columns().items()}))
    made = exclusion.manifest()
    if not made.num_documents:
        raise MixingError("exclude: no document of the mixture is left; delete the packed artifact instead")
    made.save(out)
    exclusion.shares().save(out)
    taken.save(out)
    metrics: dict[str, Scalar] = {
        "num_documents": made.num_documents,
        "num_tokens": made.num_tokens,
        "limited_by": "",
    }
    return Outcome(metrics=metrics, accounts=exclusion.accounts())


class _Exclusion:
    """Counts the excluded documents and tokens, by source and by point of the table of shares."""

    def __init__(self, mixture: Mixture) -> None:
        self._mixture = mixture.manifest
        self._table = mixture.shares()
        size = len(mixture.sources)
        # documents and tokens; and the same for first draws only
        self._excluded = np.zeros((4, size), dtype=np.int64)
        # excluded tokens before each point of the table
        self._before = np.zeros((len(self._table.positions) + 1, size))
        self._position = mixture.manifest.first_position
        self._starts = np.array(mixture.manifest.first_document_starts, dtype=np.int64)
        self._starts_left: list[int] = []

    def add(self, plan: Plan, excluded: NDArray[np.bool_]) -> None:
        """Count the next rows; `excluded` marks those to leave out."""
        starts, self._starts = self._starts[: len(plan)], self._starts[len(plan) :]
        self._starts_left += starts[~excluded[: len(starts)]].tolist()
        lengths = plan.num_tokens.astype(np.int64)
        positions = self._position + np.cumsum(lengths) - lengths
        self._position += int(lengths.sum())
        source, tokens = plan.source[excluded], lengths[excluded]
        for row, chosen in ((0, np.ones(len(source), dtype=np.bool_)), (2, plan.epoch[excluded] == 0)):
            np.add.at(self._excluded[row], source[chosen], 1)
            np.add.at(self._excluded[row + 1], source[chosen], tokens[chosen])
        points = np.searchsorted(self._table.positions, positions[excluded], side="right")
        np.add.at(self._before, (points, source), tokens)

    def manifest(self) -> MixtureManifest:
        """The manifest of the remaining mixture."""
        left = self._mixture.num_tokens - int(self._excluded[1].sum())
        table = self.shares()
        sources = [self._source(k, left, table) for k in range(len(self._mixture.sources))]
        figures = {
            "num_documents": self._mixture.num_documents - int(self._excluded[0].sum()),
            "num_tokens": left,
            "first_document_starts": tuple(self._starts_left),
            "sources": sources,
        }
        return self._mixture.model_copy(update=figures)

    def _source(self, index: int, num_tokens: int, table: ShareTable) -> MixedSource:
        was, excluded = self._mixture.sources[index], self._excluded[:, index].tolist()
        drawn = was.drawn_tokens - excluded[1]
        ahead = table.given[:, index] - table.requested[:, index]
        figures = {
            "share": round(drawn / max(1, num_tokens), 12),
            "drawn_documents": was.drawn_documents - excluded[0],
            "drawn_tokens": drawn,
            "unique_documents": was.unique_documents - excluded[2],
            "unique_tokens": was.unique_tokens - excluded[3],
            "epochs": round(drawn / max(1, was.num_tokens), 12),
            "most_ahead_tokens": float(np.round(np.max(ahead, initial=0.0), 6)),
            "most_behind_tokens": float(np.round(np.max(-ahead, initial=0.0), 6)),
        }
        return was.model_copy(update=figures)

    def shares(self) -> ShareTable:
        """The table of shares at the same points of the plan, over the remaining tokens."""
        excluded = np.cumsum(self._before, axis=0)[:-1]
        positions = self._table.positions - excluded.sum(axis=1)
        scale = positions / np.maximum(self._table.positions, 1)
        return ShareTable(positions, self._table.requested * scale[:, None], self._table.given - excluded)

    def accounts(self) -> list[Account]:
        """The accounts of each source, in documents (once per draw) and tokens."""
        units: tuple[tuple[int, Unit], ...] = ((0, "documents"), (1, "tokens"))
        return [
            Account(
                source=source.source,
                unit=unit,
                num_in=(drawn := getattr(source, f"drawn_{unit}")),
                became={"kept": drawn - (gone := int(self._excluded[row, index])), "taken_down": gone},
            )
            for index, source in enumerate(self._mixture.sources)
            for row, unit in units
        ]


EXCLUDE = Stage(verb="exclude", task="takedown", kind="mixture", version=2, params=TakedownParams, run=run)
