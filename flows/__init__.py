"""Composition, profiles, command line and deployments; no algorithm lives here."""
