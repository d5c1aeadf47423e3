"""One interface for each outside system: storage tiers, the training store, launchers, the fleet, tracking, SQL."""
