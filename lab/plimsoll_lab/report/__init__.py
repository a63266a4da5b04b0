"""What a person, or a script, gets to see. One summary is the source of terminal, JSON, CSV and HTML.

This package reads only `store` and `stats`.
"""
