"""The stages by the names in their tasks' titles, and the kinds of artifacts, for settings that name them."""

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

Kind: TypeAlias = Literal[
    "corpus",
    "counts",
    "balance",
    "tokenizer",
    "audit",
    "encoded",
    "usage",
    "tokenizer_card",
    "mixture",
    "packed",
    "validation",
    "card",
]
