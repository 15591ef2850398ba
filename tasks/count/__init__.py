"""Count: how often each pre-token occurs, for each source."""
