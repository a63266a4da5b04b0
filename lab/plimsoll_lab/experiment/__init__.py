"""Which trials, in what order, again or not: runs, searches, plans. It alone imports `trial`, and
it prints nothing.
"""
