"""What reacts. Every sensor is level-triggered: each tick compares what should be with what is.

The work of a tick is proportional to what is new: trainings are listed under the duties still open towards
them. Run requests carry no run key, which would be burnt for ever; a request is skipped while an unfinished
run is tagged with the same subject, and for a while after one that failed.
"""
