"""The page of a comparison of runs: one HTML file that needs no network, drawn with pieces of the audit's."""
