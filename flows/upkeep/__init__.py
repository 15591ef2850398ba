"""Keeps a store in order: checks it, and removes what nothing needs; without Prefect."""
