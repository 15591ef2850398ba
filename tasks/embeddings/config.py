"""The settings of a model that name ids or the size of its vocabulary, for a vocabulary that was changed.

`vocab_size` becomes the number of rows, that of `text_config` too, where models of several kinds of input
have it. Ids of special tokens (`eos_token_id`, `image_token_index`, lists of them) get their new numbers,
without which a trimmed model would never end a text. Numbers that are not old ids (-1, say) stay.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.core.faults import read_named
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

CONFIG, GENERATION = "config.json", "generation_config.json"
_IDS = ("_token_id", "_token_ids", "_token_index")
_TEXT = "text_config"


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file.

    Raises:
        EmbeddingError: the file cannot be read, or holds something else.
    """
    try:
        value = orjson.loads(read_named(file))
        orjson.dumps(value)  # which refuses what is nested so deeply that it could not be written again
    except (OSError, orjson.JSONDecodeError, orjson.JSONEncodeError) as error:
        raise EmbeddingError(f"{file}: cannot be read as JSON: {error}; get it again") from error
    if not isinstance(value, dict):
        raise EmbeddingError(f"{file}: is not a JSON object; get it again")
    return value


def with_new_size(config: Mapping[str, Any], num_rows: int) -> dict[str, Any]:
    """Return the settings with another size of the vocabulary, wherever they have it."""
    text = config.get(_TEXT)
    within = isinstance(text, Mapping) and "vocab_size" in text
    changed = dict(config)
    if within:
        changed[_TEXT] = {**config[_TEXT], "vocab_size": num_rows}
    if not within or "vocab_size" in config:
        changed["vocab_size"] = num_rows
    return changed


def with_new_ids(config: Mapping[str, Any], plan: EmbeddingPlan, where: Path) -> dict[str, Any]:
    """Return the settings with the new ids of their tokens."""
    new = np.full(plan.old_size, -1, dtype=np.int64)
    kept = np.flatnonzero(plan.kept >= 0)
    new[plan.kept[kept]] = kept

    def renumbered(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: renumbered(key, inner) for key, inner in value.items()}
        if not name.endswith(_IDS):
            return value
        if isinstance(value, list):
            return [renumbered(name, inner) for inner in value]
        if type(value) is not int or not 0 <= value < plan.old_size:
            return value
        if new[value] < 0:
            raise EmbeddingError(
                f"{where}: {name}={value} is the id of a token that the new vocabulary does not have; set it "
                "to another, or make the token a special one before trimming"
            )
        return int(new[value])

    return {key: renumbered(key, value) for key, value in config.items()}
