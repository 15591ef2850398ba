"""The audit's report: one HTML file, made from an audit's tables (docs/adr/0025-pictures.md)."""

from tokmill.tasks.audit.report.report import write_report

__all__ = ["write_report"]
