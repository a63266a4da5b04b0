"""`python -m plimsoll_lab` is `plimsoll-lab`."""

from plimsoll_lab.cli.program import main

main()
