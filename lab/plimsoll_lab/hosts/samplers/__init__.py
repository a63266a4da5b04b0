"""What is read while a trial runs. A sampler reads kernel files; it starts nothing and judges
nothing.
"""
