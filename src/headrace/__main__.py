"""`python -m headrace` is the command line."""

from headrace.cli import main

main()
