"""The command `slipway`: a file for each group of verbs, each verb thin over a Python function of its subject.

What a verb needs is imported when it runs, so that `slipway --help` and shell completion answer at once.
"""
