"""Ingress: bytes that are pushed at us, by thousands of connections, kept until Spark has read them.

`gateway` takes bytes from sockets, `journal` keeps them, `shredder` finds the records in them. No Spark in here.
"""
