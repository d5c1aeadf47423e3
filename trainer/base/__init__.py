"""What every room stands on: atomic files, digests, locks, journals, processes, patience."""
