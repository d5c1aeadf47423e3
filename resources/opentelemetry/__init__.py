"""OpenTelemetry: trainings as traces, from the asset's run through the job and its ranks to the sections of a step.

spans       the spans of a training, and their OTLP form; pure
target      where they go, from OpenTelemetry's own variables
delivery    what to send next of a training
"""
