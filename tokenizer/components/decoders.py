"""Decoders: how the byte strings of tokens become text again.

The model gives the bytes of each id; a decoder puts them together. `fuse` lays them end to end and adds
nothing, which is right for every model whose pre-tokens tile the text; the name is that of Hugging Face's
tokenizers. Bytes that are not UTF-8 are decided when a text is decoded (`errors`), not here.
"""

from dataclasses import dataclass

from tokmill.tokenizer.core.errors import TokenizerError

DECODERS = ("fuse",)


@dataclass(frozen=True)
class Decoder:
    """A way to put tokens together.

    Attributes:
        name: one of `DECODERS`.

    Raises:
        TokenizerError: an unknown name.
    """

    name: str = "fuse"

    def __post_init__(self) -> None:
        if self.name not in DECODERS:
            raise TokenizerError(f"decoder={self.name!r:.80} is not known; use one of {', '.join(DECODERS)}")

    def spec(self) -> str:
        """Give the decoder as JSON-able data: its name."""
        return self.name
