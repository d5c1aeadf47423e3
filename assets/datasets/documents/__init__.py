"""Common parts of both kinds of documents: extraction from source files, the documents table, and its step."""
