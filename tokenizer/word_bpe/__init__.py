"""BPE over words whose ends are marked with `</w>`."""
