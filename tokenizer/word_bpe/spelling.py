"""How pieces are spelled in files: as text, or in GPT-2's byte alphabet, with `</w>` as it is."""

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core.alphabet import to_bytes, to_text
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.word_bpe.model import WordPairModel, model_of

_SUFFIX = ENDS.decode()


def spell_piece(piece: bytes, by_bytes: bool) -> str:
    """Return a piece as text; letters that are bytes are written in the byte alphabet."""
    if not by_bytes:
        return piece.decode()
    return to_text(piece.removesuffix(ENDS)) + (_SUFFIX if piece.endswith(ENDS) else "")


def read_piece(text: str, by_bytes: bool, where: str) -> bytes:
    """Read a piece that `spell_piece` wrote.

    Raises:
        FormatError: a character is not in the byte alphabet.
    """
    if not by_bytes:
        return text.encode()
    return to_bytes(text.removesuffix(_SUFFIX), where) + (ENDS if text.endswith(_SUFFIX) else b"")


def spelled_pairs(model: WordPairModel) -> list[tuple[str, str]]:
    """Return the merges as text, in order of rank."""
    return [
        (spell_piece(left, model.by_bytes), spell_piece(right, model.by_bytes)) for left, right in model.pairs
    ]


def spelled_vocab(definition: Definition, format_name: str) -> dict[str, int]:
    """Return ids by token as text; special tokens as they are.

    Raises:
        FormatError: a special token's text is another token's.
    """
    special = {token: name for name, token in definition.named_tokens.items()}
    by_bytes, vocab = model_of(definition).by_bytes, dict[str, int]()
    for i, token in enumerate(definition.tokens):
        if token:
            text = special.get(i) or spell_piece(token, by_bytes)
            if vocab.setdefault(text, i) != i:
                raise FormatError(
                    f"format={format_name!r} cannot express the special token {text!r}, because the token "
                    f"{definition.tokens[vocab[text]]!r} is written the same; rename the special token"
                )
    return vocab
