"""The `headrace` command, its demo and its terminal views."""
