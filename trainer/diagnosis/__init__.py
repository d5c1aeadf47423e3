"""Diagnosis: what a node's processes were doing when steps were interrupted, kept as the evidence of an incident."""
