"""The command line `tokmill`: its application, its options, and how results and progress are shown."""
