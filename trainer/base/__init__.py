"""The common base of all packages: atomic files, digests, locks, journals, processes, retries."""
