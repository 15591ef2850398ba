"""The shared part of families whose tokens are whole strings: a string is a token, or it is unknown."""
