"""`python -m flytraj.cli`."""

from flytraj.cli import main

main()
