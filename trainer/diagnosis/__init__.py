"""Diagnosis: the state of a node's processes at an interruption, saved as the evidence of an incident."""
