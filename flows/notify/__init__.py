"""Messages about runs to people: a webhook and a command, which never change what becomes of a run."""
