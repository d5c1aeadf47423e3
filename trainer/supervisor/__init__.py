"""The supervisor of a node imports all that a rank needs, forks the ranks, and forks them anew when one dies."""
