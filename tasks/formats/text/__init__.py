"""Text as it is read: files, compression, encodings, documents and shards of them."""
