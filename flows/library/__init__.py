"""The library's face: runs, stores and single stages from Python, above all in a notebook.

A stage on columns of text is the profile's DAG, cut: the columns are written beside the store, and the same
tasks run over them, so its ids are those of a run.
"""
