"""The frame of all stages: requests and outcomes, errors, the memory budget, progress, pipelines, DuckDB."""
