"""A run in a notebook or a script: its summary, its tables as DuckDB relations, its charts.

>>> from plimsoll_lab.notebook import open_run
>>> run = open_run("runs/0007")
>>> run.summary.answer
>>> run.trials.filter("figure = 'completed_rate'").df()
>>> run.charts["headline"]
"""

from __future__ import annotations

from plimsoll_lab.notebook.run import Chart, Run, open_run, open_runs

__all__ = ["Chart", "Run", "open_run", "open_runs"]
