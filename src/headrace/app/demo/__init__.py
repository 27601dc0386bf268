"""`headrace demo`: one generated stream, several pipelines, a live view, and some results. See `show`."""
