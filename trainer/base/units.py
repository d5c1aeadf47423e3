"""Units: a minute, an hour and a day in seconds; a MiB and a GiB in bytes."""

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
MIB, GIB = 2**20, 2**30
