"""Compare tokenizers of several sizes, balances and families that were trained on the same text."""
