"""What other systems are told of a run while it works: events of OpenLineage, a run in MLflow.

Nothing here changes a run: what cannot be delivered is told at its end, in one sentence.
"""
