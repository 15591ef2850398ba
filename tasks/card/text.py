"""The data card as Markdown. Every number is one of `CardFacts`; this module only lays them out."""

from collections.abc import Mapping, Sequence

from tokmill.tasks.audit.summary import TEXTS
from tokmill.tasks.card.facts import CardFacts, PackedFacts, SourceFacts, TokenizerFacts
from tokmill.tasks.card.validation import held_out_lines
from tokmill.tasks.card.words import (
    account_lines,
    bar,
    code,
    front_matter,
    license_line,
    longest_run,
    number_of,
    ratio,
    size,
    size_category,
)
from tokmill.tasks.core.markdown import cell, percent, table
from tokmill.tasks.formats.packed.manifest import FarthestBlock
from tokmill.tokenizer.components.roles import DEFAULT_TEMPLATE
from tokmill.tokenizer.pipeline.families import find_family

_SHOWN_SPECIALS = 12


def to_markdown(facts: CardFacts) -> str:
    """The card as a Markdown document."""
    sections = [
        _opening(facts),
        _sources(facts),
        _files(facts),
        _tokenizer(facts),
        _mixture(facts),
        _packing(facts.packed),
        *([] if facts.validation is None else [held_out_lines(facts.validation)]),
        _conservation(facts),
        _loading(facts),
        _artifacts(facts),
    ]
    lines = [*_front_matter(facts), *(line for section in sections for line in [*section, ""])]
    return "\n".join(lines).rstrip("\n") + "\n"


def _front_matter(facts: CardFacts) -> list[str]:
    fields = {
        "pretty_name": facts.title,
        "language": facts.languages,
        "size_categories": [size_category(facts.packed.num_sequences)],
        "task_categories": ["text-generation"],
        "tags": ["tokmill", "pretraining", "tokenized", *facts.tags],
    }
    return front_matter(fields, facts.license)


def _opening(facts: CardFacts) -> list[str]:
    packed, tokenizer = facts.packed, facts.tokenizer
    glance = (
        f"**{packed.num_tokens:,} tokens** in **{packed.num_sequences:,} sequences** of "
        f"{packed.sequence_length:,}, {percent(packed.fill)} full, from "
        f"**{number_of(len(facts.sources), 'source')}** with "
        f"{size(sum(source.num_bytes for source in facts.sources))} of text; a vocabulary of "
        f"**{tokenizer.vocab_size:,}** at **{ratio(facts.mixture.bytes_per_token)} bytes per token** at "
        f"the mixture's shares ({ratio(tokenizer.audited_bytes_per_token)} of "
        f"{TEXTS[tokenizer.audited_text]})."
    )
    if tokenizer.unknown_share:
        glance += f" **It loses text**: {percent(tokenizer.unknown_share)} of its tokens are unknown."
    lines = [f"# {facts.title}", "", glance]
    lines += ["", facts.description] if facts.description else []
    return [*lines, "", license_line(facts.license, "card.license")]


def _sources(facts: CardFacts) -> list[str]:
    trained = facts.balance is not None
    head = ["source", "files", "documents", "text", "share of text"]
    head += ["balanced share", "share in training"] if trained else []
    head += ["tokens", "share of tokens", "share of the mixture", ""]
    rows = [_source_row(source, facts.sources, trained) for source in facts.sources]
    lines = ["## Sources", "", *table(head, rows, left=(0, len(head) - 1))]
    notes = [f"- **{cell(source.source)}**: {source.note}" for source in facts.sources if source.note]
    if facts.balance is not None:
        lines += ["", f"*Balanced share*: what the balance gives each source ({_balance(facts)}). "]
        lines[-1] += (
            "*Share in training*: its part of the bytes that the tokenizer was trained on, as counted. "
        )
        lines[-1] = f"{lines[-1]}{_capped(facts.sources)}".rstrip()
        lines += ["", *_warned(facts.balance.warnings)] if facts.balance.warnings else []
    return [*lines, "", *notes] if notes else lines


def _files(facts: CardFacts) -> list[str]:
    rows = [[file.source, code(file.name), size(file.size_bytes), f"`{file.digest}`"] for file in facts.files]
    more = sum(source.num_files for source in facts.sources) - len(facts.files)
    lines = ["## Source files", "", *table(["source", "file", "size", "SHA-256"], rows, left=(0, 1, 3))]
    return [*lines, "", f"And {more:,} more, in the corpus' `files.parquet`."] if more > 0 else lines


def _source_row(source: SourceFacts, every: Sequence[SourceFacts], trained: bool) -> list[str]:
    largest = max(other.mixed_share for other in every)
    balanced = percent(source.balanced_share) + ("†" if source.training_capped else "")
    training = [balanced, percent(source.training_share)] if trained else []
    return [
        source.source,
        f"{source.num_files:,}",
        f"{source.num_documents:,}",
        size(source.num_bytes),
        percent(source.text_share),
        *training,
        f"{source.num_tokens:,}",
        percent(source.token_share),
        percent(source.mixed_share),
        bar(source.mixed_share, largest),
    ]


def _balance(facts: CardFacts) -> str:
    balance = facts.balance
    if balance is None:
        return "an existing tokenizer was taken"
    limit = "" if balance.max_repetition is None else f", at most {balance.max_repetition:g} times"
    return f"{_method(balance.method, balance.temperature)} over {balance.unit}{limit}"


def _warned(warnings: Sequence[str]) -> list[str]:
    return [f"- **Warning**: {warning}" for warning in warnings]


def _method(method: str, temperature: float | None) -> str:
    return method if temperature is None else f"{method} {temperature:g}"


def _capped(sources: Sequence[SourceFacts]) -> str:
    return "† held back by its limit." if any(source.training_capped for source in sources) else ""


def _tokenizer(facts: CardFacts) -> list[str]:
    tokenizer = facts.tokenizer
    head = [
        "source",
        "bytes per token",
        "characters per token",
        "vocabulary used",
        "Rényi",
    ]
    rows = [
        [
            source.source,
            ratio(source.bytes_per_token),
            ratio(source.chars_per_token),
            percent(source.vocabulary_used, 1),
            ratio(source.renyi_efficiency),
        ]
        for source in facts.sources
    ]
    overall = [tokenizer.bytes_per_token, tokenizer.chars_per_token]
    used = percent(tokenizer.vocabulary_used, 1)
    efficiency = ratio(tokenizer.renyi_efficiency)
    rows.append(
        ["**all**", *(f"**{ratio(value)}**" for value in overall), f"**{used}**", f"**{efficiency}**"]
    )
    note = (
        "Of the encoded text, each document once, without the tokens that begin and end documents. *Rényi*: "
        "the efficiency of order 2.5, which is the entropy of the ordinary tokens' frequencies over the "
        "logarithm of their number; 1 if all occur equally."
    )
    chat = _chat_templates(tokenizer.chat_templates)
    return ["## Tokenizer", "", *_tokenizer_list(tokenizer), "", *table(head, rows), "", note, *chat]


def _chat_templates(templates: Mapping[str, str]) -> list[str]:
    """The text of each template as a block of code, which nothing in it can end."""
    lines = list[str]()
    for name, text in sorted(templates.items()):
        fence = "`" * max(3, longest_run(text) + 1)
        head = "### Chat template" if name == DEFAULT_TEMPLATE else f"### Chat template {code(name)}"
        lines += ["", head, "", f"{fence}jinja", *text.splitlines(), fence]
    return lines


def _tokenizer_list(tokenizer: TokenizerFacts) -> list[str]:
    specials = ", ".join(code(name) for name in tokenizer.special_tokens[:_SHOWN_SPECIALS]) or "none"
    more = len(tokenizer.special_tokens) - _SHOWN_SPECIALS
    how = "trained on these sources" if tokenizer.origin == "trained" else "an existing tokenizer"
    end = "none" if tokenizer.end_of_document is None else code(tokenizer.end_of_document)
    title = find_family(tokenizer.family).title
    return [
        f"- {title}, {how}: {tokenizer.vocab_size:,} tokens{_figures(tokenizer)}",
        *_unknown(tokenizer),
        f"- Special tokens: {specials}{f' and {more:,} more' if more > 0 else ''}; "
        f"{tokenizer.num_reserved:,} reserved; after each document: {end}",
        *_roles(tokenizer),
        f"- Split pattern: {code(tokenizer.split_pattern)}; digits: {tokenizer.digits}; normalizer: "
        f"{tokenizer.normalizer or 'none'}",
        f"- Ordinary tokens that never occur in the encoded text: {tokenizer.num_never_encoded_tokens:,}; "
        f"the audit's gate: {tokenizer.gate}",
    ]


def _roles(tokenizer: TokenizerFacts) -> list[str]:
    """What the special tokens are for: `eos <|endoftext|>`."""
    named = ", ".join(f"{role} {code(name)}" for role, name in tokenizer.roles.items())
    return [f"- Roles: {named}"] if named else []


def _figures(tokenizer: TokenizerFacts) -> str:
    """The counts that describe the family's models: `, 743 merges`."""
    merges = {} if tokenizer.num_merges is None else {"num_merges": tokenizer.num_merges}
    figures = {**merges, **tokenizer.figures}
    return "".join(f", {value:,} {name.removeprefix('num_')}" for name, value in figures.items())


def _unknown(tokenizer: TokenizerFacts) -> list[str]:
    """What is lost of text that the vocabulary does not have, for families that lose it."""
    if tokenizer.unknown_token is None:
        return []
    return [
        f"- Text that is not in the vocabulary becomes {code(tokenizer.unknown_token)} and is lost: "
        f"{tokenizer.num_unknown_tokens or 0:,} tokens of the encoded text"
    ]


def _mixture(facts: CardFacts) -> list[str]:
    mixture, goes_on = facts.mixture, facts.mixture.first_position > 0
    head = ["source", "asked for", "came out", "tokens", "times read"]
    head += ["times read before", "at most in the whole run"] if goes_on else ["at most"]
    rows = [_mixture_row(source, goes_on) for source in facts.sources]
    lines = [
        "## Mixture",
        "",
        f"{mixture.num_tokens:,} tokens in {mixture.num_documents:,} documents, by "
        f"{_method(mixture.method, mixture.temperature)} over tokens, seed {mixture.seed}. The section on "
        "sequences says how closely the sources keep to these shares all along the way.",
        "",
        *table(head, rows),
    ]
    if goes_on:
        lines[2] += (
            f" **It goes on from token {mixture.first_position:,} of a run** that read another mixture up to "
            "there: what is said here is of the rest of that run."
        )
    lines += ["", *_warned(mixture.warnings)] if mixture.warnings else []
    limited = any(source.limits for source in facts.sources)
    return [*lines, "", "‡ its limit sets the size of the mixture, or its share."] if limited else lines


def _mixture_row(source: SourceFacts, goes_on: bool) -> list[str]:
    before = [f"{source.read_before_tokens / max(1, source.num_tokens):.3f}"] if goes_on else []
    return [
        source.source + (" ‡" if source.limits else ""),
        percent(source.requested_share, 4),
        percent(source.mixed_share, 4),
        f"{source.mixed_tokens:,}",
        f"{source.epochs:.3f}",
        *before,
        f"{source.max_repetition:g}",
    ]


def _packing(packed: PackedFacts) -> list[str]:
    long_documents = f"; long documents: {packed.long_documents}" if packed.long_documents else ""
    last = f"; the last sequence: {packed.last_sequence}" if packed.last_sequence else ""
    return [
        "## Sequences",
        "",
        f"- {packed.num_sequences:,} sequences of {packed.sequence_length:,} tokens in "
        f"{number_of(packed.num_shards, 'shard')}, as {' and '.join(packed.formats)}",
        f"- Packed by {packed.strategy}{long_documents}{last}",
        f"- Of {sum(packed.documents.values()):,} documents {_ends(packed.documents)}",
        f"- {packed.num_tokens:,} tokens and {packed.num_padding_tokens:,} of padding (id "
        f"{packed.pad_id}): {percent(packed.fill, 4)} full",
        f"- Tokens are {packed.dtype}; document boundaries are kept, so that attention can stay within them",
        *_shares(packed),
    ]


def _shares(packed: PackedFacts) -> list[str]:
    """How well the packed sequences keep the mixture's shares, if that was measured."""
    if not packed.shares:
        return []
    head = ["source", "in all", "off the plan"]
    asked = all(share.farthest is not None for share in packed.shares)
    head += ["off the request", "asked for there", "came out there", "from sequence"] if asked else []
    rows = [
        [share.source, percent(share.packed_share), _points(share.deviation), *_farthest(share.farthest)]
        for share in packed.shares
    ]
    note = (
        "*Off the plan*: the most percentage points by which a source's share of a block is off that of "
        "the planned order in the same place."
    )
    note += (
        " *Off the request*: the same from what was asked for there, and in which block. Documents are whole "
        "in the planned order, so long ones take it off the request."
    ) * asked
    block = number_of(packed.share_block_sequences or 0, "sequence")
    when = " before documents were taken down" * ("taken_down" in packed.documents)
    return [
        "",
        f"Shares of the tokens{when}, measured in blocks of {block}:",
        "",
        *table(head, rows),
        "",
        note,
    ]


def _farthest(block: FarthestBlock | None) -> list[str]:
    if block is None:
        return []
    shares = [percent(block.requested_share), percent(block.packed_share)]
    return [_points(block.deviation), *shares, f"{block.first_sequence:,}"]


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


def _conservation(facts: CardFacts) -> list[str]:
    lines = [
        "## Conservation",
        "",
        "Every document and every token is accounted for. Read each row from left to right: what comes in, "
        "plus what a stage adds, less what it leaves out, is what it hands on.",
    ]
    for accounts in facts.ledgers:
        lines += ["", *account_lines(accounts)]
    packed = facts.packed
    capacity = packed.num_sequences * packed.sequence_length
    total = (
        f"{packed.num_tokens:,} + {packed.num_padding_tokens:,} of padding = {capacity:,} = "
        f"{packed.num_sequences:,} sequences × {packed.sequence_length:,}."
    )
    return [*lines, "", total]


def _loading(facts: CardFacts) -> list[str]:
    packed = facts.packed
    lines = [
        "## Loading",
        "",
        "```python",
        "import tokmill",
        "",
        'reader = tokmill.PackedReader.open("path/to/packed")  # `tokmill show` says where it lies',
        f"len(reader)  # {packed.num_sequences:,}",
        "sequence = reader[0]",
        f"sequence.input_ids  # {packed.dtype} [{packed.sequence_length}]",
        "sequence.position_ids, sequence.segment_ids, sequence.loss_mask, sequence.cu_seqlens",
        "sequence.document_mask()  # who may attend to whom",
        "reader.provenance(0)  # source, shard and document of every piece",
        "```",
    ]
    if "parquet" in packed.formats:
        lines += ["", *_loading_parquet()]
    return lines


def _loading_parquet() -> list[str]:
    return [
        "The Parquet files need no code of ours:",
        "",
        "```python",
        'datasets.load_dataset("parquet", data_files="path/to/packed/shard-*.parquet")',
        "```",
    ]


def _artifacts(facts: CardFacts) -> list[str]:
    rows = [
        [artifact.kind, f"{artifact.num_files:,}", f"`{artifact.content_digest}`"]
        for artifact in facts.artifacts
    ]
    head = ["artifact", "files", "content digest"]
    return ["## Made from", "", *table(head, rows, left=(0, 2))]
