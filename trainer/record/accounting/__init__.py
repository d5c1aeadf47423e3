"""Accounting: what every second of a training was spent on, from its ledger, its claims and its exits. Pure."""
