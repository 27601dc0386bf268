"""An example of a package that adds a kind of sink to headrace: `type = 'tsv'`."""
