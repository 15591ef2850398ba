"""SentencePiece's `.model`, with a `.vocab` for people beside it. Law: ids are those of `sentencepiece`.

Control symbols become special tokens with their roles; symbols that users defined become pieces that are
chosen first. The family named by `model_type` makes the model, and says how text is cut before it. What is
put around texts is in `tokenizer_config.json`; else texts of BPE models get their beginning, and others
nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tokmill.tokenizer.components.decoders import Decoder
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.components.sentences import SentenceNormalizer
from tokmill.tokenizer.core.errors import FormatError, cannot_express, refuse_malformed
from tokmill.tokenizer.core.vocabulary import Vocabulary, count_reserved
from tokmill.tokenizer.formats import transformers
from tokmill.tokenizer.formats.files import (
    SENTENCEPIECE,
    SENTENCEPIECE_VOCAB,
    read_file,
    read_json,
    write_file,
)
from tokmill.tokenizer.formats.model_file import (
    MODEL_TYPES,
    TRAINER_FIELDS,
    ModelFile,
    Piece,
    PieceKind,
    read_model,
    write_model,
)
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import find_family, format_modules
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.splitting.splitter import PreTokenizer

_ROLES = ("bos", "eos", "pad")
"""Found by the names of their pieces, as sentencepiece does; the ids in the settings decide nothing."""
_BPE = next(number for number, name in MODEL_TYPES.items() if name == "bpe")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def read(path: Path, usage: Usage) -> Definition:
    """Read a file."""
    if not usage.is_empty:
        raise FormatError(f"{path}: says itself how text is split and normalized; pass the path alone")
    with refuse_malformed(str(path)):
        definition = file_definition(read_model(read_file(path), str(path)), str(path))
        return replace(definition, post_processor=_template(definition, _settings(path.parent)))


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / transformers.FILE_NAME
    return read_json(file) if file.is_file() else {}


def _template(definition: Definition, settings: Mapping[str, Any]) -> Template | None:
    """Return the template of the tokens that settings put around texts."""
    usual = {"bos": _part_of(definition).MODEL_TYPE == _BPE, "eos": False}
    names = [
        [definition.all_roles[role]]
        if settings.get(f"add_{role}_token", usual[role]) and role in definition.all_roles
        else []
        for role in usual
    ]
    return Template.around_each(*names) if any(names) else None


def _part_of(definition: Definition) -> Any:
    return find_family(definition.family).format_module("sentencepiece")


def file_definition(file: ModelFile, where: str) -> Definition:
    """Make a tokenizer of the content of a file."""
    part = _part_for(file.trainer["model_type"], where)
    for trouble in _troubles(file):
        raise FormatError(f"{where}: {trouble}")
    of = {kind: [i for i, piece in enumerate(file.pieces) if piece.kind == kind] for kind in PieceKind}
    named = [*of[PieceKind.UNKNOWN], *of[PieceKind.CONTROL]]
    specials = {file.pieces[i].text: i for i in named}
    if len(specials) < len(named):
        raise FormatError(f"{where}: two special tokens have one name; the file is damaged")
    tokens = {i: piece.text.encode() for i, piece in enumerate(file.pieces)}
    tokens |= {i: bytes([_BYTES.index(file.pieces[i].text)]) for i in of[PieceKind.BYTE]}
    vocabulary = Vocabulary.build(tokens, specials, count_reserved(specials), of[PieceKind.BYTE])
    unknown = file.pieces[of[PieceKind.UNKNOWN][0]].text
    control = {file.pieces[i].text for i in of[PieceKind.CONTROL]}
    pieces = {role: file.trainer[f"{role}_piece"] for role in _ROLES}
    roles = {role: name if name in control else None for role, name in pieces.items()}
    return sentence_definition(part.model_of(file, vocabulary, unknown), _normalizer(file), roles)


def sentence_definition(
    model: Model, normalizer: SentenceNormalizer, roles: Mapping[str, str | None]
) -> Definition:
    """Put the model of a file, or one that is trained as sentencepiece does it, into its pipeline."""
    part = find_family(model.family).format_module("sentencepiece")
    definition = Definition(
        model,
        PreTokenizer(part.pattern_of(model)),
        normalizer,
        decoder=Decoder("metaspace" if normalizer.add_dummy_prefix else "metaspace_never"),
    )
    return definition.with_roles(roles)


def _part_for(model_type: int, where: str) -> Any:
    """Return the module of the family whose models have a type."""
    parts = [*format_modules("sentencepiece")]
    for part in parts:
        if model_type == part.MODEL_TYPE:
            return part
    known = ", ".join(MODEL_TYPES[part.MODEL_TYPE] for part in parts)
    name = MODEL_TYPES.get(model_type, model_type)
    raise FormatError(f"{where}: model_type is {name!r}; only {known} can be read")


def _normalizer(file: ModelFile) -> SentenceNormalizer:
    given = file.normalizer
    return SentenceNormalizer(
        given["name"],
        given["precompiled_charsmap"],
        given["add_dummy_prefix"],
        given["remove_extra_whitespaces"],
        given["escape_whitespaces"],
        tuple(piece.text for piece in file.pieces if piece.kind == PieceKind.USER_DEFINED),
        file.trainer["treat_whitespace_as_suffix"],
    )


def _troubles(file: ModelFile) -> Iterator[str]:
    if not file.normalizer["escape_whitespaces"]:
        yield "escape_whitespaces=false cannot be done here"
    kinds = [piece.kind for piece in file.pieces]
    if kinds.count(PieceKind.UNKNOWN) != 1:
        yield f"{kinds.count(PieceKind.UNKNOWN)} pieces are of type UNKNOWN; there must be one"
    if PieceKind.UNUSED in kinds:
        yield f"piece {kinds.index(PieceKind.UNUSED)} is of type UNUSED, which cannot be done here"
    names = [piece.text for piece in file.pieces if piece.kind == PieceKind.BYTE]
    if sorted(names) != (_BYTES if file.trainer["byte_fallback"] else []):
        yield (
            f"byte_fallback={file.trainer['byte_fallback']}, but {len(names)} pieces are of type BYTE; "
            "there must be <0x00> to <0xFF>, or none"
        )


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write `tokenizer.model`, and the pieces as text beside it, into a folder."""
    file = _model_file(definition)
    lines = (f"{piece.text}\t{piece.score:g}\n" for piece in file.pieces)
    settings = _written_settings(definition)
    beside = bool(settings or definition.roles or definition.chat_templates)
    return [
        write_file(folder / SENTENCEPIECE, write_model(file)),
        write_file(folder / SENTENCEPIECE_VOCAB, "".join(lines).encode()),
        *(transformers.write(definition, folder, **settings) if beside else []),
    ]


def _model_file(definition: Definition) -> ModelFile:
    model, normalizer = definition.model, definition.normalizer
    part = _part_of(definition)
    if not part.can_hold(model) or not isinstance(normalizer, SentenceNormalizer):
        raise _refusal()
    file = ModelFile(
        _pieces(model, normalizer), _trainer(definition, part.MODEL_TYPE), _normalizer_fields(normalizer)
    )
    if definition.pre_tokenizer.chain != (part.pattern_of(model),):
        raise _refusal()
    return file


def _written_settings(definition: Definition) -> dict[str, bool]:
    """Return the settings from which a reader puts the same tokens around texts; none for the usual ones."""
    for flags in ({}, *({"bos": bos, "eos": eos} for bos in (False, True) for eos in (False, True))):
        settings = {f"add_{role}_token": adds for role, adds in flags.items()}
        if _template(definition, settings) == definition.post_processor:
            return settings
    raise _refusal()


def _refusal() -> FormatError:
    what = "this tokenizer: it needs a model that was read from such a file, and no template but bos and eos"
    return cannot_express("sentencepiece", what, "huggingface", "tokmill")


def _pieces(model: Any, normalizer: SentenceNormalizer) -> list[Piece]:
    vocabulary, kept = model.vocabulary, {text.encode() for text in normalizer.kept}
    special = set(vocabulary.special_tokens.values())
    pieces = []
    for i, token in enumerate(vocabulary.tokens):
        kind, text = PieceKind.NORMAL, token.decode("utf-8", "replace")
        if i in vocabulary.byte_ids:
            kind, text = PieceKind.BYTE, _BYTES[token[0]]
        elif i == model.unknown_id:
            kind = PieceKind.UNKNOWN
        elif i in special:
            kind = PieceKind.CONTROL
        elif token in kept:
            kind = PieceKind.USER_DEFINED
        if not token or (kind != PieceKind.BYTE and text.encode() != token):
            raise cannot_express("sentencepiece", f"id {i}, {token!r:.80}")
        score = 0.0 if kind == PieceKind.USER_DEFINED else float(model.scores[i])
        pieces.append(Piece(text, score, kind))
    return pieces


def _trainer(definition: Definition, model_type: int) -> dict[str, object]:
    model, normalizer = cast(Any, definition.model), definition.normalizer
    suffix = isinstance(normalizer, SentenceNormalizer) and normalizer.treat_whitespace_as_suffix
    return {
        **({"treat_whitespace_as_suffix": True} if suffix else {}),
        "model_type": model_type,
        "byte_fallback": bool(model.vocabulary.byte_ids),
        "unk_id": model.unknown_id,
        "unk_piece": model.unknown_token,
        **_written_roles(definition),
    }


def _written_roles(definition: Definition) -> dict[str, object]:
    """Return the ids of roles, and the names of their pieces if they are not the usual ones."""
    fields: dict[str, object] = {}
    usual = {name: default for name, _, default in TRAINER_FIELDS.values()}
    for role in _ROLES:
        name = definition.all_roles.get(role)
        fields[f"{role}_id"] = -1 if name is None else definition.special_tokens[name]
        if name is None and usual[f"{role}_piece"] in definition.special_tokens:
            name = definition.model.unknown_token  # no control symbol, so that none has the role
        if name is not None and name != usual[f"{role}_piece"]:
            fields[f"{role}_piece"] = name
    return fields


def _normalizer_fields(normalizer: SentenceNormalizer) -> dict[str, object]:
    return {
        "name": normalizer.rule_name,
        "precompiled_charsmap": normalizer.charsmap,
        "add_dummy_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "escape_whitespaces": normalizer.escape_whitespaces,
    }
