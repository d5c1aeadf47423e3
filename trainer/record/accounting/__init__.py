"""Accounting: how a training spent each second, from its ledger, its claims and its exits."""
