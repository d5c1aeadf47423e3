"""Sweeps: trials sampled from a space, compared at rungs by a scheduler, recorded in an event log.

    events     the events of the log                 state, trial   a sweep after some events
    decisions  the next decisions                    actions        the controller's next actions
    search_subject  a recipe's plan and budget       store          the folder of a sweep
    samplers   the parameters of the n-th trial: study, distributions and draws beneath it
    schedulers which trials continue, and where they pause
    lineage    the parameters that led to a trial's weights      ranking   agreement of low and high rungs
    report     the results as tables and shares      controller     carries out decisions and logs its observations
    assets     the sweep and its trials in Dagster

All modules except the store, the controller and the assets are pure: the same log gives the same sweep, the same
decisions and the same report.
"""
