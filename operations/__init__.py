"""What a schedule or an operator starts: a file for each operation, with its op or asset, its job and its schedule."""
