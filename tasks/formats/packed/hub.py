"""The `README.md` by which Hugging Face's `datasets` knows which files of a folder are data.

Without it `load_dataset(folder)` takes for data whatever it can read: manifests, or a record. Its head says
which files are; in a folder whose formats `datasets` does not read it names those all the same, so that the
library refuses them instead of loading something else.
"""

from pathlib import Path

from tokmill.tasks.formats.packed.layout import PackedManifest
from tokmill.tasks.formats.packed.shard_format import format_of

CARD_FILE = "README.md"


def write_dataset_card(out: Path, manifest: PackedManifest) -> None:
    """Write `README.md` into a folder of packed shards."""
    pattern = min(map(format_of, manifest.formats), key=lambda known: known.hub_order).pattern
    lines = [
        "---",
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: train",
        f'    path: "{pattern}"',
        "---",
        "",
        f"{manifest.num_sequences:,} packed sequences of {manifest.sequence_length:,} tokens, as "
        f"{', '.join(manifest.formats)}. `packed.json` says how they were packed.",
    ]
    (out / CARD_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
