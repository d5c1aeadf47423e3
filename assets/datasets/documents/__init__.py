"""What the documents of all datasets share: extraction from source files, the table of documents, and their step."""
