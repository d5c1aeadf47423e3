"""Sweeps: trials sampled from a space, stopped early by successive halving, recorded in an event log.

    space      the parameters of the n-th trial      halving     which trials go on past a rung
    events     the events of the log                 state       the state of a sweep after some events
    decisions  the next decisions and actions        store       the folder of a sweep
    report     the results as tables and shares      controller  carries decisions out and logs what it observes
    assets     the sweep and its trials in Dagster

All but the store, the controller and the assets are pure: the same log gives the same sweep, the same decisions and
the same report.
"""
