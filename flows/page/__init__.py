"""What a person reads in Prefect's pages, as Markdown and rows: artifacts, links, progress, reasons.

Nothing here talks to a server; `flows.run.page` publishes it.
"""
