"""The frame of every stage: requests and outcomes, errors, memory, progress, pipelines, DuckDB."""
