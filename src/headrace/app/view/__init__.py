"""What a person sees of a running hub in a terminal: `live` draws the whole of it, `lines` says it in one line."""
