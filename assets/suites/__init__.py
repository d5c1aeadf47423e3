"""Suites: fixed examples on which models are measured and compared.

suite      what a suite is on disk: a manifest over one table of examples, both named by their hashes
tasks      questions with one right answer of four, from documents and from numbers
leaks      the examples that share a passage with a training document
making     makes a suite from a dataset's snapshot, once
encoding   the examples in the tokens of one model
measured   the results of a model on a suite: by example, by slice and by task
assets     the suite as an asset, with its check
"""
