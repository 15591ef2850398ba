"""Every stage by its verb, as records name it; a stage's module is imported when its artifact is made."""

from importlib import import_module
from typing import Any

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Stage

_MODULES = {
    "adopt": "train.adopt",
    "audit": "audit.stage",
    "audit_shard": "audit.text",
    "balance": "balance.stage",
    "card": "card.stage",
    "consume": "mixing.consume",
    "count": "count.stage",
    "count_shard": "count.stage",
    "encode": "encode.stage",
    "encode_shard": "encode.stage",
    "exclude": "takedown.exclude",
    "export": "export.stage",
    "export_shard": "export.stage",
    "extend": "vocabulary.stage",
    "fit_trigrams": "score.stage",
    "hash_documents": "holdout.stage",
    "holdout": "holdout.stage",
    "ingest": "ingest.stage",
    "merge_counts": "count.merge_stage",
    "mix": "mixing.stage",
    "pack": "packing.stage",
    "pack_plan": "packing.stage",
    "pack_shard": "packing.stage",
    "score_column": "score.stage",
    "score_noise": "score.stage",
    "score_perplexity": "score.stage",
    "sweep": "sweep.stage",
    "sweep_cell": "sweep.cell",
    "takedown": "takedown.stage",
    "tokenizer_card": "tokenizer_card.stage",
    "train": "train.stage",
    "trim": "vocabulary.stage",
    "usage": "usage.stage",
}


def verbs() -> list[str]:
    """Return the verbs of all stages, sorted."""
    return sorted(_MODULES)


def stage_of(verb: str) -> Stage[Any]:
    """Return a stage.

    Raises:
        StoreError: this tokmill has none of that verb.
    """
    if verb not in _MODULES:
        raise StoreError(
            f"this tokmill has no stage {verb!r}; use the version that the artifact was made with"
        )
    module = import_module(f"tokmill.tasks.{_MODULES[verb]}")
    return next(value for value in vars(module).values() if isinstance(value, Stage) and value.verb == verb)
