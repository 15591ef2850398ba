"""Profiles: one TOML file a run, checked before anything runs."""

from flows.profile.files import shipped_folder, shipped_names
from flows.profile.load import load_profile
from flows.profile.model import SIZE, Execution, ExistingTokenizer, Profile, Size

__all__ = [
    "SIZE",
    "Execution",
    "ExistingTokenizer",
    "Profile",
    "Size",
    "load_profile",
    "shipped_folder",
    "shipped_names",
]
