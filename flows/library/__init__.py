"""The library's face: runs, stores and single stages from Python, above all in a notebook.

What it returns has paths and figures, gives tables to Arrow, pandas and polars, and shows itself in a
notebook. A single stage on columns of text (`stages.py`) is the profile's DAG, cut: the columns are written
beside the store, and the same tasks run over them, so its ids are those of a run. pandas and polars are no
requirements, and are imported here only where one of their tables is asked for.
"""
