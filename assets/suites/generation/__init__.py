"""Generation: tasks that a registered version answers by generating text, and the results of each example."""
