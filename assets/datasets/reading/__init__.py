"""Readers: the documents of a file, as a stream, in memory that the longest document bounds and the file does not."""
