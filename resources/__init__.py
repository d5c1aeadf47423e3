"""What is talked to, one interface each: tiers, the training store, launchers, the fleet, tracking, SQL."""
