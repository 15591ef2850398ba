"""The data card as Markdown. Every number is one of `data.facts_of`; this module only lays them out."""

from collections.abc import Mapping
from typing import Any

from tokmill.tasks.audit.summary import TEXTS
from tokmill.tasks.card.accounts import account_lines
from tokmill.tasks.card.words import (
    Column,
    Facts,
    artifact_lines,
    bar,
    code,
    document,
    figures_text,
    first_of,
    listed,
    longest_run,
    number_of,
    opening,
    ratio,
    rule,
    section,
    size,
    weighting,
)
from tokmill.tasks.core.markdown import cell, percent
from tokmill.tokenizer.components.roles import DEFAULT_TEMPLATE
from tokmill.tokenizer.pipeline.families import find_family

_SHOWN_SPECIALS = 12
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


def to_markdown(facts: Facts) -> str:
    """The card as a Markdown document."""
    front = {
        "size_categories": [size_category(facts["packed"]["num_sequences"])],
        "task_categories": ["text-generation"],
        "tags": ["tokmill", "pretraining", "tokenized", *facts["tags"]],
    }
    sections = [
        _opening(facts),
        _sources(facts),
        _files(facts),
        _tokenizer(facts),
        _mixture(facts),
        _packing(facts["packed"]),
        _held_out(facts["validation"]) if "validation" in facts else [],
        _conservation(facts),
        _loading(facts["packed"]),
        section("Made from", artifact_lines(facts["artifacts"])),
    ]
    return document(front, facts, sections)


def size_category(number: int) -> str:
    """The class of a number of rows as hubs name it: `10K<n<100K`."""
    place = sum(number >= 1000 * 10**power for power in range(len(_SIZES)))
    if place == 0:
        return f"n<{_SIZES[0]}"
    return f"n>{_SIZES[-1]}" if place == len(_SIZES) else f"{_SIZES[place - 1]}<n<{_SIZES[place]}"


def _opening(facts: Facts) -> list[str]:
    packed, tokenizer, sources = facts["packed"], facts["tokenizer"], facts["sources"]
    glance = (
        f"**{packed['num_tokens']:,} tokens** in **{packed['num_sequences']:,} sequences** of "
        f"{packed['sequence_length']:,}, {percent(packed['fill'])} full, from "
        f"**{number_of(len(sources), 'source')}** with {size(sum(one['num_bytes'] for one in sources))} of "
        f"text; a vocabulary of **{tokenizer['vocab_size']:,}** at "
        f"**{ratio(facts['mixture']['bytes_per_token'])} bytes per token** at the mixture's shares "
        f"({ratio(tokenizer['audited_bytes_per_token'])} of {TEXTS[tokenizer['audited_text']]})."
    )
    if lost := tokenizer.get("unknown_share"):
        glance += f" **It loses text**: {percent(lost)} of its tokens are unknown."
    return opening(facts, glance, "card.license")


def _sources(facts: Facts) -> list[str]:
    sources, balance = facts["sources"], facts["balance"]
    largest = max(one["mixed_share"] for one in sources)
    trained: dict[str, Column] = {
        "balanced share": lambda one: percent(one["balanced_share"]) + "†" * one["training_capped"],
        "share in training": "training_share",
    }
    columns: dict[str, Column] = {
        **{"source": "source", "files": "num_files", "documents": "num_documents", "text": "num_bytes"},
        "share of text": "text_share",
        **(trained if balance else {}),
        **{"tokens": "num_tokens", "share of tokens": "token_share", "share of the mixture": "mixed_share"},
        "": lambda one: bar(one["mixed_share"], largest),
    }
    about, shown = "", listed(sources, columns, (0, len(columns) - 1))
    if balance:
        about = (
            f"*Balanced share*: what the balance gives each source ({weighting(balance)}). *Share in "
            "training*: its part of the bytes that the tokenizer was trained on, as counted."
        )
        about += " † held back by its limit." * any(one["training_capped"] for one in sources)
    notes = [f"- **{cell(one['source'])}**: {one['note']}" for one in sources if one["note"]]
    return section("Sources", shown, about, _warned(balance or {}), notes)


def _files(facts: Facts) -> list[str]:
    columns: dict[str, Column] = {
        "source": "source",
        "file": lambda file: code(file["name"]),
        "size": "size_bytes",
        "SHA-256": lambda file: f"`{file['digest']}`",
    }
    more = sum(one["num_files"] for one in facts["sources"]) - len(facts["files"])
    rest = f"And {more:,} more, in the corpus' `files.parquet`." if more > 0 else ""
    return section("Source files", listed(facts["files"], columns, (0, 1, 3)), rest)


def _warned(of: Facts) -> list[str]:
    return [f"- **Warning**: {warning}" for warning in of.get("warnings", ())]


def _tokenizer(facts: Facts) -> list[str]:
    tokenizer = facts["tokenizer"]
    columns: dict[str, Column] = {
        "source": "source",
        "bytes per token": "bytes_per_token",
        "characters per token": "chars_per_token",
        "vocabulary used": lambda one: percent(one["vocabulary_used"], 1),
        "Rényi": "renyi_efficiency",
    }
    note = (
        "Of the encoded text, each document once, without the tokens that begin and end documents. *Rényi*: "
        "the efficiency of order 2.5, which is the entropy of the ordinary tokens' frequencies over the "
        "logarithm of their number; 1 if all occur equally."
    )
    shown = listed(facts["sources"], columns, total={"source": "all", **tokenizer})
    chat: list[str | list[str]] = []
    for name, text in sorted(tokenizer.get("chat_templates", {}).items()):
        fence = "`" * max(3, longest_run(text) + 1)  # which nothing in the text can end
        head = "### Chat template" if name == DEFAULT_TEMPLATE else f"### Chat template {code(name)}"
        chat += [head, [f"{fence}jinja", *text.splitlines(), fence]]
    return section("Tokenizer", _about_tokenizer(tokenizer), shown, note, *chat)


def _about_tokenizer(tokenizer: Facts) -> list[str]:
    specials = first_of(list(map(code, tokenizer["special_tokens"])), _SHOWN_SPECIALS)
    how = "trained on these sources" if tokenizer["origin"] == "trained" else "an existing tokenizer"
    merges = {"num_merges": tokenizer["num_merges"]} if "num_merges" in tokenizer else {}
    figures = figures_text({**merges, **tokenizer.get("figures", {})})
    end, roles = tokenizer["end_of_document"], tokenizer.get("roles", {}).items()
    named = ", ".join(f"{role} {code(name)}" for role, name in roles)
    lines = [
        f"- {find_family(tokenizer.get('family', 'byte_bpe')).title}, {how}: "
        f"{tokenizer['vocab_size']:,} tokens{figures}"
    ]
    if unknown := tokenizer.get("unknown_token"):
        lines.append(
            f"- Text that is not in the vocabulary becomes {code(unknown)} and is lost: "
            f"{tokenizer.get('num_unknown_tokens', 0):,} tokens of the encoded text"
        )
    return [
        *lines,
        f"- Special tokens: {specials}; {tokenizer['num_reserved']:,} reserved; after each document: "
        f"{'none' if end is None else code(end)}",
        *([f"- Roles: {named}"] if named else []),
        f"- Split pattern: {code(tokenizer['split_pattern'])}; digits: {tokenizer['digits']}; normalizer: "
        f"{tokenizer['normalizer'] or 'none'}",
        "- Ordinary tokens that never occur in the encoded text: "
        f"{tokenizer['num_never_encoded_tokens']:,}; the audit's gate: {tokenizer['gate']}",
    ]


def _mixture(facts: Facts) -> list[str]:
    mixture, goes_on = facts["mixture"], facts["mixture"]["first_position"] > 0
    limited = any(one["limits"] for one in facts["sources"])
    read_before: dict[str, Column] = {
        "times read before": lambda one: ratio(one["read_before_tokens"] / max(1, one["num_tokens"]))
    }
    columns: dict[str, Column] = {
        "source": lambda one: one["source"] + " ‡" * one["limits"],
        "asked for": lambda one: percent(one["requested_share"], 4),
        "came out": lambda one: percent(one["mixed_share"], 4),
        "tokens": "mixed_tokens",
        "times read": lambda one: ratio(one["epochs"]),
        **(read_before if goes_on else {}),
        "at most in the whole run" if goes_on else "at most": lambda one: f"{one['max_repetition']:g}",
    }
    about = (
        f"{mixture['num_tokens']:,} tokens in {mixture['num_documents']:,} documents, by "
        f"{rule(mixture['method'], mixture['temperature'])} over tokens, seed {mixture['seed']}. The section "
        "on sequences says how closely the sources keep to these shares all along the way."
    )
    if goes_on:
        about += (
            f" **It goes on from token {mixture['first_position']:,} of a run** that read another mixture up "
            "to there: what is said here is of the rest of that run."
        )
    limit = "‡ its limit sets the size of the mixture, or its share." * limited
    return section("Mixture", about, listed(facts["sources"], columns), _warned(mixture), limit)


def _packing(packed: Facts) -> list[str]:
    text = """\
- {num_sequences:,} sequences of {sequence_length:,} tokens in {shards}, as {written}
- Packed by {strategy}{long}{last}
- Of {of_documents:,} documents {ends}
- {num_tokens:,} tokens and {num_padding_tokens:,} of padding (id {pad_id}): {full} full
- Tokens are {dtype}; document boundaries are kept, so that attention can stay within them"""
    said = text.format(
        **packed,
        shards=number_of(packed["num_shards"], "shard"),
        written=" and ".join(packed["formats"]),
        long=f"; long documents: {packed['long_documents']}" if packed["long_documents"] else "",
        last=f"; the last sequence: {packed['last_sequence']}" if packed["last_sequence"] else "",
        of_documents=sum(packed["documents"].values()),
        ends=_ends(packed["documents"]),
        full=percent(packed["fill"], 4),
    )
    return section("Sequences", said.splitlines(), *(_shares(packed) if packed["shares"] else ()))


def _shares(packed: Facts) -> tuple[str, list[str], str]:
    asked = all(share["farthest"] is not None for share in packed["shares"])
    farthest: dict[str, Column] = {
        "off the request": lambda share: _points(abs(_there(share, "packed") - _there(share, "requested"))),
        "asked for there": lambda share: percent(_there(share, "requested")),
        "came out there": lambda share: percent(_there(share, "packed")),
        "from sequence": lambda share: f"{share['farthest']['first_sequence']:,}",
    }
    columns: dict[str, Column] = {
        **{"source": "source", "in all": "packed_share"},
        "off the plan": lambda share: _points(share["deviation"]),
        **(farthest if asked else {}),
    }
    note = (
        "*Off the plan*: the most percentage points by which a source's share of a block is off that of "
        "the planned order in the same place."
    )
    note += (
        " *Off the request*: the same from what was asked for there, and in which block. Documents are whole "
        "in the planned order, so long ones take it off the request."
    ) * asked
    block = number_of(packed["share_block_sequences"] or 0, "sequence")
    when = " before documents were taken down" * ("taken_down" in packed["documents"])
    measured = f"Shares of the tokens{when}, measured in blocks of {block}:"
    return measured, listed(packed["shares"], columns), note


def _there(share: Mapping[str, Any], name: str) -> float:
    """A source's share of the block of sequences where it is farthest from what was asked for."""
    return float(share["farthest"][f"{name}_share"])


def _points(share: float) -> str:
    return f"{100 * share:.2f}"


def _ends(documents: Mapping[str, int]) -> str:
    """What became of the documents, most telling first; ends that none came to are left out.

    What a takedown leaves has one end, whole in one sequence or not.
    """
    if "taken_down" in documents:
        return f"{documents['packed']:,} are left, {documents['taken_down']:,} taken down"
    words = {"packed": "are whole in one sequence", "split": "whole over several", "truncated": "cut off"}
    told = [f"{documents[end]:,} {word}" for end, word in words.items() if documents.get(end)]
    lost = sum(number for end, number in documents.items() if end not in words)
    return ", ".join([*told, f"{lost:,} left out"] if lost else told)


def _held_out(facts: Facts) -> list[str]:
    columns: dict[str, Column] = {
        **{"source": "source", "documents": "num_documents", "share of documents": "share"},
        **{"text": "num_bytes", "tokens": "num_tokens"},
    }
    about = (
        "These documents are in no other section of this card: nothing was counted, trained or mixed with "
        "them. They were chosen by their content, so that all copies of a document are on one side. Each is "
        "read once, in {sequences} of {sequence_length:,} tokens, packed by {strategy}: {num_tokens:,} "
        "tokens and {num_padding_tokens:,} of padding."
    ).format(**facts, sequences=number_of(facts["num_sequences"], "sequence"))
    shown = (listed(facts["sources"], columns), *map(account_lines, facts["ledgers"]))
    return section("Held out for validation", about, *shown, artifact_lines(facts["artifacts"]))


def _conservation(facts: Facts) -> list[str]:
    about = (
        "Every document and every token is accounted for. Read each row from left to right: what comes in, "
        "plus what a stage adds, less what it leaves out, is what it hands on."
    )
    total = (
        "{num_tokens:,} + {num_padding_tokens:,} of padding = {capacity:,} = {num_sequences:,} sequences × "
        "{sequence_length:,}."
    )
    packed = facts["packed"]
    capacity = packed["num_sequences"] * packed["sequence_length"]
    ledgers = map(account_lines, facts["ledgers"])
    return section("Conservation", about, *ledgers, total.format(**packed, capacity=capacity))


def _loading(packed: Facts) -> list[str]:
    text = """## Loading

```python
import tokmill

reader = tokmill.PackedReader.open("path/to/packed")  # `tokmill show` says where it lies
len(reader)  # {num_sequences:,}
sequence = reader[0]
sequence.input_ids  # {dtype} [{sequence_length}]
sequence.position_ids, sequence.segment_ids, sequence.loss_mask, sequence.cu_seqlens
sequence.document_mask()  # who may attend to whom
reader.provenance(0)  # source, shard and document of every piece
```"""
    if "parquet" in packed["formats"]:
        text += """

The Parquet files need no code of ours:

```python
datasets.load_dataset("parquet", data_files="path/to/packed/shard-*.parquet")
```"""
    return text.format(**packed).splitlines()
