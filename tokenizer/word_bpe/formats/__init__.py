"""The file formats that can express BPE over words, besides tokmill's own."""
