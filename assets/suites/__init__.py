"""Suites: the fixed examples that models are measured on and compared with each other.

suite      what a suite is on disk: a manifest over one table of examples, both named by their hashes
tasks      questions with one right answer of four, from documents and from numbers
leaks      which examples share a passage with a training document
making     making a suite from a dataset's snapshot, once
encoding   the examples in the tokens of one model
measured   what a model's measurement on a suite says: by example, by slice and by task
assets     the suite as an asset, with its check
"""
