"""The facts of a data card, from the records and tables of the artifacts that it is about.

`card.json` is what `facts_of` returns; each fact is named where it is read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.card.accounts import StageAccounts, account_table
from tokmill.tasks.card.words import Facts
from tokmill.tasks.core.errors import AccountError
from tokmill.tasks.core.stage import NO_SOURCE, Account
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import Balance
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.sampling import proportions
from tokmill.tasks.store.record import read_record
from tokmill.tasks.usage.summary import read_summary as read_usage

SHOWN_FILES = 20
"""Files of each source that a card names."""
_MADE = ("corpus", "counts", "balance", "tokenizer", "audit", "encoded", "usage", "mixture", "packed")
_HELD_OUT = ("validation_corpus", "validation_encoded", "validation_mixture", "validation")
_GIVEN = ("title", "description", "license", "languages", "tags")
_PACKED = ("sequence_length", "num_sequences", "num_tokens", "num_padding_tokens")


class Upstream:
    """The artifacts that a card describes.

    Args:
        paths: their directories by role.
        earlier: by kind, the versions that documents were taken down from to make it, the oldest first.
    """

    def __init__(self, paths: Mapping[str, Path], earlier: Mapping[str, Sequence[Path]]) -> None:
        self.paths, self.earlier = paths, earlier
        self.corpus = Corpus.open(paths["corpus"])

    @cached_property
    def balance(self) -> Balance | None:
        """The balance; None where an existing tokenizer was taken."""
        return Balance.open(self.paths["balance"]) if "balance" in self.paths else None

    def accounts(self, kind: str, stage: str, hands_on: str, *passes: str) -> StageAccounts:
        """The accounts of a stage's artifact, as it was before documents were taken down from it."""
        path = [*self.earlier.get(kind, ()), self.paths[kind]][0]
        return StageAccounts.read(path, stage, hands_on, *passes)

    def taken_down(self, kind: str, passes: str) -> list[StageAccounts]:
        """The takedowns that led to the artifact of a kind, one after the other."""
        paths = [*self.earlier.get(kind, ()), self.paths[kind]]
        return [
            StageAccounts.read(path, f"takedown {number}", "left", passes)
            for number, path in enumerate(paths[1:], start=1)
        ]


def facts_of(upstream: Upstream, given: Mapping[str, Any]) -> Facts:
    """Read all facts of the card; `given` are the fields of `CardParams`."""
    paths = upstream.paths
    encoded, mixture = Encoded.open(paths["encoded"]), Mixture.open(paths["mixture"]).manifest
    packed = PackedManifest.open(paths["packed"])
    balanced = ("method", "temperature", "unit", "max_repetition", "total", "warnings")
    mixed = ("method", "temperature", "seed", "num_documents", "num_tokens", "first_position", "warnings")
    facts = {
        **{name: given[name] for name in _GIVEN},
        "sources": _sources(upstream, encoded, mixture, given["source_notes"]),
        "files": _files(upstream.corpus),
        "tokenizer": _tokenizer(upstream, packed.end_of_document_id),
        "balance": _of(upstream.balance, *balanced) if upstream.balance else None,
        "mixture": {**_of(mixture, *mixed), "bytes_per_token": _mixed_bytes_per_token(mixture, encoded)},
        "packed": _packed(packed, read_record(paths["packed"]).accounts),
        "ledgers": _ledgers(upstream, packed),
        "artifacts": _artifacts(paths[kind] for kind in ("ingested", *_MADE) if kind in paths),
    }
    return {**facts, "validation": _validation(paths)} if "validation" in paths else facts


def _of(model: Any, *names: str) -> Facts:
    return {name: getattr(model, name) for name in names}


def _files(corpus: Corpus) -> list[Facts]:
    """The first files of each source: name (relative to the source's root), size, and SHA-256."""
    rows = corpus.table("files").select(["source", "name", "size_bytes", "digest"]).to_pylist()
    by_source = ([row for row in rows if row["source"] == source] for source in corpus.sources)
    return [row for its in by_source for row in its[:SHOWN_FILES]]


def _artifacts(paths: Iterable[Path]) -> list[Facts]:
    """Artifacts by their content: their sizes depend on the library that wrote them."""
    records = map(read_record, paths)
    return [{**_of(each, "kind", "content_digest"), "num_files": len(each.files)} for each in records]


def _mixed_bytes_per_token(mixture: Any, encoded: Encoded) -> float | None:
    """Bytes per token of all sources, each read as often as the mixture reads it.

    Tokens that begin and end documents are left out, as in all such figures.
    """
    num_bytes = num_tokens = 0.0
    for entry in mixture.sources:
        found = encoded.source(entry.source).statistics
        read = entry.drawn_tokens / max(1, entry.num_tokens)
        added = found.num_begin_tokens + found.num_end_tokens + found.num_fim_tokens
        num_bytes += read * found.num_bytes
        num_tokens += read * (found.num_tokens - added)
    return round(num_bytes / num_tokens, 6) if num_tokens else None


def _sources(upstream: Upstream, encoded: Encoded, mixture: Any, notes: Mapping[str, str]) -> list[Facts]:
    """One entry per source, in the corpus' order: from its text to its tokens in the sequences.

    Shares of the tokenizer's training are None if an existing tokenizer was taken.
    """
    corpus, balance = upstream.corpus, upstream.balance
    stats = {source: corpus.source_stats(source) for source in corpus.sources}
    tokens = {source: encoded.source(source).statistics.num_tokens for source in stats}
    text_shares = _shares({source: found.num_bytes for source, found in stats.items()})
    token_shares = _shares(tokens)
    balanced = {entry.source: entry for entry in balance.sources} if balance else {}
    mixed = {entry.source: entry for entry in mixture.sources}
    used = {entry.source: entry for entry in read_usage(upstream.paths["usage"]).sources}
    trained = read_record(upstream.paths["tokenizer"]).metrics
    return [
        {
            "source": source,
            "note": notes.get(source, ""),
            **_of(found, "num_files", "num_documents", "num_bytes"),
            "text_share": text_shares[source],
            "balanced_share": balanced[source].share if balance else None,
            "training_share": float(trained.get(f"share.{source}", 0.0)) if balance else None,
            "training_factor": balanced[source].factor if balance else None,
            "training_capped": balanced[source].capped if balance else None,
            "num_tokens": tokens[source],  # of its documents, end tokens included
            "token_share": token_shares[source],
            "requested_share": mixed[source].requested_share,
            "mixed_share": mixed[source].share,
            "mixed_tokens": mixed[source].drawn_tokens,  # repetitions included
            "read_before_tokens": mixed[source].given_before_tokens,  # in the run, before this mixture
            **_of(mixed[source], "epochs", "max_repetition", "limits"),
            **_of(used[source], "bytes_per_token", "chars_per_token"),
            "vocabulary_used": used[source].used_share,
            "renyi_efficiency": used[source].renyi_efficiency,
        }
        for source, found in stats.items()
    ]


def _shares(amounts: Mapping[str, int]) -> dict[str, float]:
    shares = proportions({source: Decimal(amount) for source, amount in amounts.items()})
    return {source: float(share) for source, share in shares.items()}


def _tokenizer(upstream: Upstream, end_id: int | None) -> Facts:
    from tokmill.tokenizer import load

    definition = load(upstream.paths["tokenizer"] / "tokmill.json").definition
    usage, audit = read_usage(upstream.paths["usage"]), read_summary(upstream.paths["audit"])
    specials, figures = dict(definition.special_tokens), definition.model.figures()
    merges = figures.pop("num_merges", None)
    further = {
        "family": "" if definition.family == "byte_bpe" else definition.family,
        "figures": figures,
        "unknown_token": definition.model.unknown_token,
        "num_unknown_tokens": usage.num_unknown_tokens,
        "unknown_share": usage.unknown_share,
        "roles": definition.all_roles,
        "chat_templates": dict(definition.chat_templates),
    }
    return {
        "origin": "trained" if upstream.balance else "existing",
        "vocab_size": definition.vocab_size,
        **({} if merges is None else {"num_merges": merges}),
        "special_tokens": [name for name in specials if name not in definition.vocabulary.reserved],
        "num_reserved": definition.num_reserved,
        "split_pattern": str(definition.pre_tokenizer.split_pattern),
        "digits": definition.pre_tokenizer.digits,
        "normalizer": definition.normalizer.name,
        "end_of_document": next((name for name, token in specials.items() if token == end_id), None),
        "bytes_per_token": usage.overall.bytes_per_token,  # of the encoded text, each document once
        "audited_bytes_per_token": audit.overall.get("bytes_per_token"),  # of the text that the audit read,
        "audited_text": audit.text,  # which is this
        "chars_per_token": usage.overall.chars_per_token,
        "vocabulary_used": usage.overall.used_share,
        "num_never_encoded_tokens": usage.num_never_encoded_tokens,
        "renyi_efficiency": usage.renyi_efficiency,
        "gate": audit.gate,
        **{name: value for name, value in further.items() if value not in (None, "", {})},
    }


def _packed(packed: PackedManifest, accounts: Sequence[Account]) -> Facts:
    documents: Counter[str] = Counter()
    for account in accounts:
        documents.update(account.became if account.unit == "documents" else {})
    fill = packed.num_tokens / (packed.num_sequences * packed.sequence_length)
    return {
        **_of(packed, *_PACKED),
        "fill": round(fill, 12),  # part of the sequences that is not padding
        **_of(packed, "strategy", "long_documents", "last_sequence", "formats", "dtype", "pad_id"),
        "end_of_document_id": packed.end_of_document_id,
        "num_shards": len(packed.shards),
        "documents": dict(sorted(documents.items())),  # of the mixture, by what became of them
        "shares": [share.model_dump() for share in packed.shares],
        "share_block_sequences": packed.share_block_sequences,
    }


def _ledgers(upstream: Upstream, packed: PackedManifest) -> list[Facts]:
    """The accounts of documents from the files to the sequences, and of tokens from the encoder on."""
    sources, divided = upstream.corpus.sources, "ingested" in upstream.paths
    read = [upstream.accounts("ingested" if divided else "corpus", "ingest", "read", "kept")]
    if divided:
        read.append(upstream.accounts("corpus", "holdout", "for training", "kept"))
    encoded = upstream.accounts("encoded", "encode", "encoded", "kept")
    mixed = upstream.accounts("mixture", "mix", "mixed", "kept", "repeated")
    on_the_way = [encoded, mixed, *upstream.taken_down("mixture", "kept")]
    documents, tokens = (
        [upstream.accounts("packed", "pack", "packed", *passes), *upstream.taken_down("packed", "packed")]
        for passes in (("packed", "split", "truncated"), ("packed",))
    )
    ledgers = [
        account_table("documents", sources, [*read, *on_the_way, *documents]),
        account_table("tokens", sources, [*on_the_way, *tokens]),
    ]
    padding = sum(one.became.get("padding", 0) for one in documents[-1].accounts if one.source == NO_SOURCE)
    found = (ledgers[1]["total"][-1], padding)
    if found != (packed.num_tokens, packed.num_padding_tokens):
        raise AccountError(
            f"card: the accounts lead to {found[0]} tokens and {found[1]} of padding, but the packed "
            f"sequences hold {packed.num_tokens} and {packed.num_padding_tokens}; pack again"
        )
    return ledgers


def _validation(paths: Mapping[str, Path]) -> Facts:
    whole, held_out = Corpus.open(paths["ingested"]), Corpus.open(paths["validation_corpus"])
    encoded, packed = Encoded.open(paths["validation_encoded"]), PackedManifest.open(paths["validation"])
    read = StageAccounts.read(paths["ingested"], "ingest", "read", "kept")
    kept = StageAccounts.read(paths["validation_corpus"], "holdout", "held out", "held_out")
    on_the_way = [
        StageAccounts.read(paths["validation_encoded"], "encode", "encoded", "kept"),
        StageAccounts.read(paths["validation_mixture"], "mix", "mixed", "kept", "repeated"),
        StageAccounts.read(paths["validation"], "pack", "packed", "packed", "split"),
    ]
    sources = [
        {
            "source": source,
            **_of(stats := held_out.source_stats(source), "num_documents", "num_bytes"),
            "share": round(stats.num_documents / max(1, whole.source_stats(source).num_documents), 12),
            "num_tokens": encoded.source(source).statistics.num_tokens,
        }
        for source in held_out.sources
    ]
    return {
        "sources": sources,
        **_of(packed, *_PACKED, "strategy"),
        "ledgers": [
            account_table("documents", held_out.sources, [read, kept, *on_the_way]),
            account_table("tokens", held_out.sources, on_the_way),
        ],
        "artifacts": _artifacts(paths[role] for role in _HELD_OUT),
    }
