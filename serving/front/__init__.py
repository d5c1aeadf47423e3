"""The front: receives the requests for all models, passes each to a version, and switches versions."""
