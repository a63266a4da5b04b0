"""Records in, answers out: summaries, families, verdicts, knees, capacities, comparisons. No host,
no page.
"""
