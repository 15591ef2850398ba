"""Why two artifacts, or two runs, differ: the first causes, found through the records."""
