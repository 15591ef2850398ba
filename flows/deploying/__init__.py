"""Deployments: their forms, schedules and limits, and their registration at a Prefect server."""
