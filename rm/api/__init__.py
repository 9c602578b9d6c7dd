"""What the HTTP API takes and gives: its requests and answers as types, and the table of its routes.

The contract of the wire, apart from the core's types: the web writes these, command line and page read
them, and OpenAPI and the tables of docs/http-api.md are made from them. Times are microseconds since the
epoch or durations, sizes bytes, rates bit/s, as the names say. Fields are only ever added.
"""
