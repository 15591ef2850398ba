"""Runs a profile: the composition of the stages, the flow that executes it, and its reports."""
