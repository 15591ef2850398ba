"""The frame of all stages: requests and outcomes, errors, settings of the caller, pipelines, DuckDB."""
