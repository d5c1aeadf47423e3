"""The kinds of object that run a job's pods, each in a file: how a job is written as one, and how one is read."""
