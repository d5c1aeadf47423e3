"""What reacts. Every sensor is level-triggered, and all have one shape.

The first lines of a sensor's file say what should be, what is, and what follows from a difference. The sensor itself
goes through its subjects in a `slipway.sensors.support.tick.Tick`, each subject alone, and returns what the tick has
collected.

The work of a tick is proportional to what is new: a sensor over trainings visits those that have pending work
(`slipway.resources.trainings.store`). Run requests carry no run key, which would be burnt for ever: a request is
skipped while an unfinished run carries the tag of the same subject, and for a while after such a run failed.
"""
