"""How a terminal shows the status of a hub: `live` draws panels and tables, `lines` prints plain lines."""
