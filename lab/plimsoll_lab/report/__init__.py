"""What a person, or a script, gets to see: terminal, page, charts and exports. It renders what
`analysis` says.
"""
