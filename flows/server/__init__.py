"""The Prefect servers of `tokmill up` and `tokmill run`: start, access control and diagnosis."""
