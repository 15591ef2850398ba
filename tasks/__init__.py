"""The stages of the DAG, how their data lies on disk, and the store that keeps it."""
