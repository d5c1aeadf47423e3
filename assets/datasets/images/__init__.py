"""What only a dataset of labelled images has: decoding, its documents table, its snapshot, and how it is shown."""
