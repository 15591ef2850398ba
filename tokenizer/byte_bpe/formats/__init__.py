"""The file formats that can express byte-level BPE, besides tokmill's own."""
