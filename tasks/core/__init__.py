"""What all stages share: requests and outcomes, errors, the memory budget, progress, pipelines, DuckDB."""
