"""What a person sees in the UI, read in a real browser."""
