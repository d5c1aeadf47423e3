"""Generation: tasks that a registered version answers by writing text, and what came of each example."""
