"""Intervals and verdicts. Pure: numbers in, numbers out; randomness is an argument; no file, clock
or process.

This package imports nothing else of ours.
"""
