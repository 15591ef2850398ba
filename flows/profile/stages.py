"""The stages by the names in their tasks' titles, for settings that are made by stage."""

from typing import Literal, TypeAlias

StageName: TypeAlias = Literal[
    "ingest",
    "hash",
    "holdout",
    "count",
    "merge_counts",
    "balance",
    "train",
    "adopt",
    "audit",
    "encode",
    "usage",
    "tokenizer_card",
    "fit",
    "score",
    "consume",
    "mix",
    "pack",
    "card",
    "cell",
    "sweep",
]
