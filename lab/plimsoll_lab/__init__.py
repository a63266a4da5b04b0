"""The laboratory of Plimsoll: it turns a question into a run, and a run into a report that can be
believed.
"""

__version__ = "0.1.0"
