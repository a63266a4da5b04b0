"""The program `plimsoll-lab`: arguments in, exit codes out; a file a verb. Nothing imports this
room.
"""
