"""The Prefect server of `tokmill up`: whom it answers, what it serves, and whether its own loops work."""
