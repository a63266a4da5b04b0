"""Where processes run: an agent starts, meters, samples and stops them, and answers in messages.
Trials are not its business.
"""
