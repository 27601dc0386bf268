"""The `headrace` command and its views."""
