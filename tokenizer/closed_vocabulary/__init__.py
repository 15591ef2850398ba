"""What families share whose tokens are whole strings: every string is a token, or it is unknown."""
