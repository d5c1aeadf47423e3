"""What is talked to, behind one interface each: storage tiers, the training store, launchers, the fleet, tracking, SQL."""
