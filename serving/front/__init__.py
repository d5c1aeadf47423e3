"""The front: takes requests for all models, gives each to a version that answers, and switches versions."""
