"""The `README.md` that tells Hugging Face's `datasets` which files of a folder are data.

Without it `load_dataset(folder)` loads any file that it can read, such as manifests or a record. The README's
header lists the data files. If `datasets` cannot read their format, they are listed nevertheless, so that the
library fails instead of loading something else.
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
