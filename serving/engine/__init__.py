"""The engine of the embedded worker: a decoder with a KV cache, and continuous batching."""
