"""What trainers read with, over what we wrote.

These tests need the trainers' own libraries (`pip install '.[consumers]'`, and `pip install --no-deps
mosaicml-streaming` for MDS, whose other requirements exclude each other) and skip visibly without them.
"""

import os

# Nothing here asks a hub, and what is cached belongs to the test.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
