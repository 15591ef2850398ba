"""Prefect: the runs that it executes, what its pages show of them, and its server, worker and deployments."""
