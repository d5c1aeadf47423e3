"""Slipway: data and training as one graph of Dagster assets.

The folders below it are links to those at the top of the repository. Nothing is imported here: every rank pays for it.
"""
