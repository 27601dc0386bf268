"""Ingress: takes bytes from thousands of TCP and HTTP connections and keeps them until Spark has read them.

`gateway` reads the sockets, `journal` stores the bytes, `shredder` finds the records in them. No Spark in this package.
"""
