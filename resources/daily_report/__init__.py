"""The daily report: what has happened since a point in time, what it cost, and what a person must do."""
