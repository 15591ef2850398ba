"""subword-nmt's codes: a header with the version, and one merge per line; there is no vocabulary.

Version 0.2 has the mark attached to the last letter, 0.1 apart. Ids: `<unk>` is 0, then the letters of the
merges by their bytes, joined pieces in order, special tokens that are passed. To write codes, save as `gpt2`:
its `merges.txt` is such a file. Source: rsennrich/subword-nmt `learn_bpe.py`, `apply_bpe.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats.files import head_of, is_codes, read_merges
from tokmill.tokenizer.formats.sidecar import SpecialTokens, Usage
from tokmill.tokenizer.formats.split_steps import WORDS
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference.word_bpe import letters_of
from tokmill.tokenizer.word_bpe.model import WordPairModel

_UNKNOWN = "<unk>"
_APART, _ATTACHED = b"#version: 0.1", b"#version: 0.2"


def recognizes(path: Path) -> bool:
    """Whether a file has the header of codes, and is not the part of another format."""
    return is_codes(path.name, head_of(path))


def read(path: Path, usage: Usage) -> Definition:
    """Read codes."""
    version = head_of(path).split(b"\n", 1)[0].strip()
    if version not in (_APART, _ATTACHED):
        raise FormatError(
            f"{path}: the version of these codes is {version!r:.80}, but only 0.1 and 0.2 are known"
        )
    with refuse_malformed(str(path)):
        pairs = [(left.encode(), right.encode()) for left, right in read_merges(path, errors="strict")]
        apart = version == _APART
        pieces = _pieces(pairs, apart)
        model = WordPairModel.build(
            Vocabulary.build(dict(enumerate(pieces, start=1)), _specials(usage.special_tokens, len(pieces))),
            pairs,
            unknown_token=_UNKNOWN,
            end_of_word="apart" if apart else "attached",
        )
        return Definition.compose(
            model,
            **usage.parts(WORDS),
            decoder="end_of_word",
        )


def _specials(given: SpecialTokens | None, num_pieces: int) -> dict[str, int]:
    """Return ids of special tokens: those that are given, or else the ones after the pieces."""
    if isinstance(given, Mapping):
        return {_UNKNOWN: 0, **given}
    names = [name for name in given or () if name != _UNKNOWN]
    return {_UNKNOWN: 0} | {name: 1 + num_pieces + i for i, name in enumerate(names)}


def _pieces(pairs: Sequence[tuple[bytes, bytes]], apart: bool) -> list[bytes]:
    """Return the letters, and then all pieces of merges in their order."""
    stems = {part.removesuffix(ENDS) for pair in pairs for part in pair}
    letters = sorted({letter for stem in stems if stem for letter in letters_of(stem, ends=b"")})
    endings = [ENDS] if apart else [letter + ENDS for letter in letters]
    parts = (piece for left, right in pairs for piece in (left, right, left + right))
    return list(dict.fromkeys([*letters, *endings, *parts]))
