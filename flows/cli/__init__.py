"""The command line `tokmill`: commands that call the flows and the store and print what they say."""
