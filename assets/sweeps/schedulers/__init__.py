"""Schedulers: they decide which trials continue past a rung, where they pause, and which start from another's commit.

    none        every trial at full length          stopping    successive halving, judging trials on arrival
    promotion   successive halving by pause         hyperband   brackets of halving by promotion
    median      the median rule                     population  population-based training
    ties        the noise of values                 protocol    the common interface

Each is a few pure functions of the state of a sweep, in a file of its own.
"""
