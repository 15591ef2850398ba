"""The seam for families: protocols of models, encoders, laws and trainers, and the registry of families."""
