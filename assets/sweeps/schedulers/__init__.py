"""Schedulers: which trials of a sweep go on past a rung, where they pause, and which begin from another's commit.

    none        every trial at full length          stopping    successive halving, a trial is judged as it arrives
    promotion   successive halving by pause         hyperband   brackets of halving by promotion
    median      the median rule                     population  population-based training
    ties        the noise of values                 protocol    what each of them gives

Each is a few pure functions of the state of a sweep, in a file of its own.
"""
