"""Recovery from a dead, slow or wrong rank: its detection, the end of the generation, and the start of the next."""
