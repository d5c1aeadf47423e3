"""How the steps of a run are executed on a cluster, and how an asset has work done on nodes."""
