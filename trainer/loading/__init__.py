"""What a rank reads in each step: the order of the data, the batches, and the feed that combines them."""
