"""The interface that people's programs speak: OpenAI's completions and chat completions, as plain values."""
