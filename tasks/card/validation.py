"""What a data card says of the documents that are held out of training."""

from collections.abc import Mapping
from pathlib import Path

from tokmill.tasks.card.conservation import AccountTable, StageAccounts, account_table
from tokmill.tasks.card.facts import ArtifactFacts, HeldOutSource, ValidationFacts
from tokmill.tasks.card.words import account_lines, number_of, size
from tokmill.tasks.core.markdown import percent, table
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.store.record import read_record

_VALIDATION = ("validation_corpus", "validation_encoded", "validation_mixture", "validation")


def of_validation(role: str) -> bool:
    """Whether an input of the card is of the documents that are held out."""
    return role in _VALIDATION


def validation_facts(paths: Mapping[str, Path]) -> ValidationFacts:
    """Read the facts of the documents that are held out."""
    packed = PackedManifest.open(paths["validation"])
    shared = packed.model_dump(
        include=set(ValidationFacts.model_fields) - {"sources", "ledgers", "artifacts"}
    )
    return ValidationFacts(
        **shared,
        sources=_sources(paths),
        ledgers=_ledgers(paths),
        artifacts=[ArtifactFacts.of(read_record(paths[role])) for role in _VALIDATION],
    )


def _sources(paths: Mapping[str, Path]) -> list[HeldOutSource]:
    whole, held_out = Corpus.open(paths["ingested"]), Corpus.open(paths["validation_corpus"])
    encoded = Encoded.open(paths["validation_encoded"])
    return [
        HeldOutSource(
            source=source,
            num_documents=(stats := held_out.source_stats(source)).num_documents,
            num_bytes=stats.num_bytes,
            share=round(stats.num_documents / max(1, whole.source_stats(source).num_documents), 12),
            num_tokens=encoded.source(source).statistics.num_tokens,
        )
        for source in held_out.sources
    ]


def _ledgers(paths: Mapping[str, Path]) -> list[AccountTable]:
    """The accounts of documents from the files to the sequences, and of tokens from the encoder on."""
    sources = Corpus.open(paths["validation_corpus"]).sources
    read = _stage(paths["ingested"], "ingest", "read", "kept")
    held_out = _stage(paths["validation_corpus"], "holdout", "held out", "held_out")
    encoded = _stage(paths["validation_encoded"], "encode", "encoded", "kept")
    mixed = _stage(paths["validation_mixture"], "mix", "mixed", "kept", "repeated")
    packed = _stage(paths["validation"], "pack", "packed", "packed", "split")
    return [
        account_table("documents", sources, [read, held_out, encoded, mixed, packed]),
        account_table("tokens", sources, [encoded, mixed, packed]),
    ]


def _stage(path: Path, stage: str, hands_on: str, *passes: str) -> StageAccounts:
    return StageAccounts(stage, hands_on, frozenset(passes), read_record(path).accounts)


def held_out_lines(facts: ValidationFacts) -> list[str]:
    """The card's section on the documents that are held out."""
    rows = [
        [
            source.source,
            f"{source.num_documents:,}",
            percent(source.share),
            size(source.num_bytes),
            f"{source.num_tokens:,}",
        ]
        for source in facts.sources
    ]
    lines = [
        "## Held out for validation",
        "",
        "These documents are in no other section of this card: nothing was counted, trained or mixed with "
        "them. They were chosen by their content, so that all copies of a document are on one side. Each is "
        f"read once, in {number_of(facts.num_sequences, 'sequence')} of {facts.sequence_length:,} tokens, "
        f"packed by {facts.strategy}: {facts.num_tokens:,} tokens and {facts.num_padding_tokens:,} of "
        "padding.",
        "",
        *table(["source", "documents", "share of documents", "text", "tokens"], rows),
    ]
    for accounts in facts.ledgers:
        lines += ["", *account_lines(accounts)]
    made = [[kind.kind, f"{kind.num_files:,}", f"`{kind.content_digest}`"] for kind in facts.artifacts]
    return [*lines, "", *table(["artifact", "files", "content digest"], made, left=(0, 2))]
