"""Results of other load generators, read into records of ours."""

from __future__ import annotations
