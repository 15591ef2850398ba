"""The page of a lineage: an HTML file that needs no network, with a map and the record of each artifact."""
