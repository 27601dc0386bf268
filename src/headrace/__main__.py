"""`python -m headrace` is the command line."""

from headrace.app.cli import main

main()
