"""`python -m headrace` is the command line."""

from headrace.app.entry import main

main()
