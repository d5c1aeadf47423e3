"""The storage tiers of checkpoints: what a tier is, how a copy gets there, and which tiers hold a copy."""
