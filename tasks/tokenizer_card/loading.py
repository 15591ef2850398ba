"""How to load a tokenizer's exports in the libraries that read them: code that can be copied.

A test runs each block and compares its ids with those of the tokenizer.
"""

from collections.abc import Sequence

from tokmill.tasks.tokenizer_card.facts import Export

HERE = "path/to/tokenizer"
"""The artifact's folder, in the code."""
TEXT = "Hello world"
_OWN = f"""import tokmill

tokenizer = tokmill.load("{HERE}")
ids = tokenizer.encode("{TEXT}")"""
_CODE = {
    "huggingface": {
        "transformers": """from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{folder}")
ids = tokenizer.encode("{text}", add_special_tokens=False)""",
        "tokenizers": """from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("{folder}/tokenizer.json")
ids = tokenizer.encode("{text}", add_special_tokens=False).ids""",
    },
    "tiktoken": {
        "tiktoken": """import json
from pathlib import Path

import tiktoken
from tiktoken.load import load_tiktoken_bpe

ranks = load_tiktoken_bpe("{folder}/tokenizer.tiktoken")
usage = json.loads(Path("{folder}/tokenizer.tiktoken.sidecar.json").read_text("utf-8"))
tokenizer = tiktoken.Encoding(
    "own", pat_str=usage["pat_str"], mergeable_ranks=ranks, special_tokens=usage["special_tokens"]
)
ids = tokenizer.encode("{text}")"""
    },
    "sentencepiece": {
        "sentencepiece": """import sentencepiece

tokenizer = sentencepiece.SentencePieceProcessor(model_file="{folder}/tokenizer.model")
ids = tokenizer.encode("{text}")"""
    },
    "tekken": {
        "mistral-common": """from mistral_common.tokens.tokenizers.tekken import Tekkenizer

tokenizer = Tekkenizer.from_file("{folder}/tekken.json")
ids = tokenizer.encode("{text}", bos=False, eos=False)"""
    },
}


def blocks(exports: Sequence[Export]) -> dict[str, str]:
    """Return library → code for the exports that there are; tokmill first."""
    found = {"tokmill": _OWN}
    for export in exports:
        for library, code in _CODE.get(export.format, {}).items() if export.files else ():
            folder = f"{HERE}/exports/{export.format}"
            found.setdefault(library, code.replace("{folder}", folder).replace("{text}", TEXT))
    return found
