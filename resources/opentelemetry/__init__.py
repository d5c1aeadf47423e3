"""OpenTelemetry: trainings as traces, from the asset's run through the job and its ranks to the parts of a step.

spans       the spans of a training; pure
otlp        their form on the wire
target      where they go: what OpenTelemetry's own variables say
delivery    what of a training is sent next
"""
