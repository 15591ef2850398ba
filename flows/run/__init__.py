"""Running a profile: the composition of the stages, the flow, and what it reports."""
