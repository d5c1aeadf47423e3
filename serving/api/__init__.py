"""The API for clients: OpenAI's completions and chat completions, as plain values."""
