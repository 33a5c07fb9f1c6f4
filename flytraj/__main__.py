"""`python -m flytraj`: the command line."""

from flytraj.cli import main

main()
