"""Reading text: files, compression, encodings, documents and shards."""
