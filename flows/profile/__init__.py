"""Profiles: one TOML file per run, validated before anything runs."""

from tokmill.flows.profile.files import shipped_folder, shipped_names
from tokmill.flows.profile.load import load_profile, profile_of
from tokmill.flows.profile.model import SIZE, Execution, ExistingTokenizer, Profile, Size

__all__ = [
    "SIZE",
    "Execution",
    "ExistingTokenizer",
    "Profile",
    "Size",
    "load_profile",
    "profile_of",
    "shipped_folder",
    "shipped_names",
]
