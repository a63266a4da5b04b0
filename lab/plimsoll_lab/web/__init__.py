"""The local web page over the runs folder: a list, each run's page, the run under way, comparisons
and histories.
"""
