"""Sweeps: trials sampled from a space, thinned by successive halving, remembered by an event log.

    space      the parameters of the n-th trial      halving    who goes on past a rung
    events     what the log says                     state      what follows from it
    decisions  what comes next                       store      the folder it lies in
    report     what was found

All but the store is pure: the same log gives the same sweep, the same decisions and the same report.
"""
