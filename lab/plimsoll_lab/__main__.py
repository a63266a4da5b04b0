"""`python -m plimsoll_lab` is `plimsoll-lab`."""

from plimsoll_lab.cli import main

main()
