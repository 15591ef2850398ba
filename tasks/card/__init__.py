"""The cards of data and of a tokenizer: facts from the artifacts upstream, as JSON and as Markdown."""
