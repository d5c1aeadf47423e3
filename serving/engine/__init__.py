"""The engine of the embedded worker: a decoder with a cache of keys and values, and continuous batching over it."""
