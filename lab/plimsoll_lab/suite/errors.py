"""Why a suite is refused."""

from __future__ import annotations


class SuiteError(Exception):
    """A suite that cannot be run. Its message is one line: what is wrong, why, and how to fix
    it.
    """
