"""Upgrade: what an earlier release of Slipway wrote becomes what this one reads, and can be taken back."""
