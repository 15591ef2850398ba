r"""`vocab_tokens`: what every token of a vocabulary is, and whether any text gives it; see docs/formats.md.

A token's surface is what it adds to a text, without the marks of its family: ` the` for `▁the`. It is
reachable if some text gives it: its own, or its own beside a letter, as `##ing` needs. For BPE and Unigram
the rest follows from the model and the split pattern: every part of an encoding is the encoding of its text
there, so a token that its own bytes do not give the model is given by no text. One that they do give is
taken for reachable if normalizer and split pattern leave it whole between some neighbours (o200k cuts
`\n//` in two, but not after a semicolon), or if it is a part of characters.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import unicodedata2 as unicodedata
from numpy.typing import NDArray

from tokmill.tasks.audit.characters import Characters
from tokmill.tasks.formats.files.arrays import read_parquet
from tokmill.tasks.formats.files.indices import check_within
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.text import all_readable, is_utf8

SCHEMA = pa.schema(
    [
        *(("token_id", pa.uint32()), ("token", pa.binary()), ("text", pa.string()), ("kind", pa.string())),
        *(("rank", pa.int64()), ("left", pa.uint32()), ("right", pa.uint32())),
        *(("num_bytes", pa.uint32()), ("num_chars", pa.uint32()), ("scripts", pa.string())),
        *(("categories", pa.string()), ("is_utf8", pa.bool_()), ("leading_space", pa.bool_())),
        *(("casing", pa.string()), ("run", pa.string()), ("word", pa.string())),
        *(("num_training", pa.uint64()), ("weighted_training", pa.float64()), ("reachable", pa.bool_())),
        *(("encodes_to", pa.list_(pa.uint32())), ("redundant", pa.bool_()), ("duplicate_of", pa.uint32())),
    ]
)
EXTRAORDINARY = frozenset({"special", "reserved", "unknown", "hole"})
"""Kinds of ids that stand for no text."""

_RUNS = {
    **{"P": "punctuation", "S": "punctuation", "PS": "punctuation", "N": "number"},
    **{"Z": "white_space", "C": "white_space", "ZC": "white_space"},
}
"""What all characters of a text are, by its categories; white space only if Python agrees."""
_LONGEST_CHARACTER = 4
_NUM_NEIGHBOURS = 6
_BY_MODEL = ("byte_bpe", "char_bpe", "unigram")
_SURROUNDINGS = (b"", b"a", b"A", b"1", b".", b";", b"{", b'"', b"'", b" ", b"\n", b"\t", b"s", b"m")


class Occurrences(NamedTuple):
    """How often each token occurs in the training text: uint64 and float64, shape (vocab_size,)."""

    counts: NDArray[np.uint64]
    weighted: NDArray[np.float64]


def surfaces_of(tok: Tokenizer) -> list[bytes]:
    """Return what each token adds to a text, by id; empty where the kind is one of `EXTRAORDINARY`."""
    added = tok.definition.decoder.added(tok.definition.vocabulary).tokens
    kinds = tok.definition.kinds()
    return [b"" if kind in EXTRAORDINARY else text for kind, text in zip(kinds, added, strict=True)]


def describe_tokens(
    tok: Tokenizer, training: Occurrences | None = None, seen: NDArray[np.bool_] | None = None
) -> pa.Table:
    """Return the table `vocab_tokens`.

    Args:
        tok: the tokenizer.
        training: occurrences in the training text, if it is known.
        seen: bool [vocab_size], tokens that occur in text that was encoded; they need not be tried.
    """
    kinds, surfaces = tok.definition.kinds(), surfaces_of(tok)
    tokens = tok.definition.tokens
    known = np.zeros(tok.vocab_size, np.bool_) if seen is None else seen.copy()
    if training is not None:
        known |= training.counts > 0
    reached, becomes = reachable_tokens(tok, surfaces, known)
    left, right, ranks = _merges(tok)
    inner = np.unique(np.concatenate([left[left >= 0], right[right >= 0]]))
    of_merge = np.isin(np.arange(tok.vocab_size), inner)
    ids = [i for i, kind in enumerate(kinds) if kind != "hole"]
    ordinary = np.array([kinds[i] not in EXTRAORDINARY for i in ids], np.bool_)
    shown = [surfaces[i] or tokens[i] for i in ids]
    texts = [*map(_text, shown)]
    columns: dict[str, Any] = {
        "token_id": ids,
        "token": [tokens[i] for i in ids],
        "text": all_readable([tokens[i] for i in ids]),
        "kind": [kinds[i] for i in ids],
        "rank": _where(ranks[ids] >= 0, ranks[ids]),
        "left": _where(left[ids] >= 0, left[ids]),
        "right": _where(right[ids] >= 0, right[ids]),
        **_of_texts(shown, texts),
        "num_training": [None] * len(ids) if training is None else training.counts[ids],
        "weighted_training": [None] * len(ids)
        if training is None
        else [v if v.is_integer() else round(v, 6) for v in training.weighted[ids].tolist()],
        "reachable": _where(ordinary, reached[ids]),
        "encodes_to": [becomes.get(i) for i in ids],
        "redundant": [None] * len(ids)
        if training is None
        else _where(ordinary, (of_merge & (training.counts == 0))[ids]),
        "duplicate_of": _duplicates(ids, [surfaces[i] for i in ids], texts),
    }
    return pa.table(columns, schema=SCHEMA)


def _where(conditions: NDArray[np.bool_], values: NDArray[Any]) -> pa.Array:
    """Return values that are NULL unless a condition holds."""
    return pa.array(values, mask=~conditions)


def _merges(tok: Tokenizer) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return both parts and the rank of each id, int64 [vocab_size]; -1 where there are none."""
    left, right, ranks = (np.full(tok.vocab_size, -1, np.int64) for _ in range(3))
    model: Any = tok.definition.model
    if getattr(model, "merges", None) is not None:
        rows = np.asarray(model.merges, np.int64)
        if rows.shape[1] == 2:
            rows = np.column_stack([rows, model.results])
        makes = np.flatnonzero(rows[:, 2] >= 0)[::-1]  # the first of several stays
        left[rows[makes, 2]], right[rows[makes, 2]] = rows[makes, 0], rows[makes, 1]
        ranks[rows[makes, 2]] = makes
    elif hasattr(model, "scores"):
        ordinary = np.array([token for token, _ in tok.definition.vocabulary.ordinary()], np.int64)
        order = np.lexsort((ordinary, -np.asarray(model.scores)[ordinary]))
        ranks[ordinary[order]] = np.arange(len(ordinary))
    return left, right, ranks


def _of_texts(surfaces: Sequence[bytes], decoded: Sequence[str | None]) -> dict[str, Any]:
    """Return the columns that follow from the surfaces alone, and from those that are text."""
    texts = [text or "" for text in decoded]
    cores = [text if text == " " else text.removeprefix(" ") for text in texts]
    words = [core.strip() for core in cores]
    characters = Characters(texts)
    runs = zip(cores, map(_RUNS.get, characters.categories_of(cores)), strict=True)
    return {
        "num_bytes": [len(surface) for surface in surfaces],
        "num_chars": [None if text is None else len(text) for text in decoded],
        "scripts": characters.scripts_of(texts),
        "categories": characters.categories_of(texts),
        "is_utf8": [text is not None for text in decoded],
        "leading_space": [surface.startswith(b" ") and len(surface) > 1 for surface in surfaces],
        "casing": characters.casing_of(texts),
        "run": [None if run == "white_space" and not core.isspace() else run for core, run in runs],
        "word": [
            None if not word or categories.strip("LMN") else word.lower()
            for word, categories in zip(words, characters.categories_of(words), strict=True)
        ],
    }


def _text(surface: bytes) -> str | None:
    try:
        return surface.decode()
    except UnicodeDecodeError:
        return None


def _duplicates(
    ids: Sequence[int], surfaces: Sequence[bytes], texts: Sequence[str | None]
) -> list[int | None]:
    """Return for each token the least id with an equal surface, if that is another one."""
    first: dict[bytes, int] = {}
    keys = [
        surface if text is None or text.isascii() else unicodedata.normalize("NFC", text).encode()
        for surface, text in zip(surfaces, texts, strict=True)
    ]
    found = [first.setdefault(key, token) if key else token for token, key in zip(ids, keys, strict=True)]
    return [before if before != token else None for token, before in zip(ids, found, strict=True)]


def reachable_tokens(
    tok: Tokenizer, surfaces: Sequence[bytes], seen: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], dict[int, list[int]]]:
    """Find out which tokens an encoding can hold.

    Args:
        tok: the tokenizer.
        surfaces: what each token adds to a text, by id; empty for ids that stand for no text.
        seen: bool [vocab_size], tokens that are known from encodings.

    Returns:
        bool [vocab_size], and for each unreachable token whose bytes are a text the ids of that text.
    """
    reached = seen.copy()
    asked = np.array([i for i, text in enumerate(surfaces) if text and not reached[i]], np.int64)
    own: dict[int, list[int]] = {}
    for before, after in [(b"", b""), *_neighbours(tok)]:
        texts = [before + surfaces[i] + after for i in asked.tolist()]
        for token, ids in zip(asked.tolist(), _encode(tok, texts), strict=True):
            reached[token] |= token in ids
            if not before and not after and ids:
                own[token] = ids
        asked = asked[~reached[asked]]
    if tok.family in _BY_MODEL:
        given = [i for i in asked.tolist() if tok.encode_pretoken(tok.definition.tokens[i]) == [i]]
        reached[[i for i in given if _is_part(surfaces[i]) or _stays_whole(tok, surfaces[i])]] = True
    return reached, {token: ids for token, ids in own.items() if not reached[token]}


def _encode(tok: Tokenizer, texts: list[bytes]) -> list[list[int]]:
    """Return the ids of texts; none for bytes that are not text."""
    valid = [text if is_utf8(text) else b"" for text in texts]
    return tok.encode_buffers(*pack_bytes(valid), as_text=True).to_lists()


def _neighbours(tok: Tokenizer) -> list[tuple[bytes, bytes]]:
    """Return what may stand before and after a token: letters that begin, or end, the fewest others."""
    vocabulary = tok.definition.vocabulary
    ordinary = np.flatnonzero(vocabulary.lengths)
    letters = [bytes([letter]) for letter in range(ord("a"), ord("z") + 1)]
    first = np.bincount(vocabulary.data[vocabulary.offsets[ordinary]], minlength=256)
    last = np.bincount(vocabulary.data[vocabulary.offsets[ordinary + 1] - 1], minlength=256)
    before = sorted(letters, key=lambda letter: first[letter[0]])[:_NUM_NEIGHBOURS]
    after = sorted(letters, key=lambda letter: last[letter[0]])[:_NUM_NEIGHBOURS]
    return [
        *((letter, b"") for letter in before),
        *((b"", letter) for letter in after),
        (before[0], after[0]),
    ]


def _is_part(data: bytes) -> bool:
    """Whether bytes that are not text can be part of one: cut characters at one end or both."""
    if is_utf8(data):
        return False
    text = data.lstrip(bytes(range(0x80, 0xC0)))
    if len(data) - len(text) >= _LONGEST_CHARACTER:
        return False
    cut = text.decode("utf-8", "ignore").encode()
    rest = text[len(cut) :]
    return text.startswith(cut) and len(rest) < _LONGEST_CHARACTER and (not rest or 0xC2 <= rest[0] <= 0xF4)


def _stays_whole(tok: Tokenizer, surface: bytes) -> bool:
    """Whether normalizer and split pattern leave a text whole between some neighbours."""
    if not is_utf8(surface):
        return False
    for before, after in product(_SURROUNDINGS, repeat=2):
        data, bounds = tok.normalize_buffers(*pack_bytes([before + surface + after]))
        start = data.tobytes().find(surface)
        parts = tok.splitter.split(data, bounds)
        if start >= 0 and ((parts.starts <= start) & (parts.ends >= start + len(surface))).any():
            return True
    return False


def read_table(audit: Path, name: str, vocab_size: int) -> pa.Table:
    """Read a table whose column `token_id` becomes an index.

    Args:
        audit: the audit artifact's directory.
        name: the table's name.
        vocab_size: ids are below it.

    Raises:
        StoreError: the file is missing or broken, or has another id.
    """
    file = audit / "catalog" / f"{name}.parquet"
    with readable(file, "table of an audit"):
        table = read_parquet(file)
    check_within(file, "token_id", table["token_id"].to_numpy(), least=0, below=vocab_size)
    return table


def read_tokens(audit: Path) -> pa.Table:
    """Read `vocab_tokens`, which has a row per id.

    Raises:
        StoreError: the file is missing or broken, or has an id beyond its rows.
    """
    file = audit / "catalog" / "vocab_tokens.parquet"
    with readable(file, "table of an audit"):
        rows = pq.read_metadata(file).num_rows
    return read_table(audit, "vocab_tokens", rows)
