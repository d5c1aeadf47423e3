"""The embedded instance: the whole platform on one machine, with all of its state in one folder."""
