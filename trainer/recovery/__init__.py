"""What a training does by itself about the faults that its ranks find: detection, and the answers to it."""
