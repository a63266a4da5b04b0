"""Which trials, in what order, again or not: runs, searches, plans. It alone knows `trial`, and it
prints nothing.
"""
