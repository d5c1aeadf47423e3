"""The daily report: all that happened since a moment, in one report: what, what it cost, and who is needed."""
