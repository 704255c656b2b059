"""hipwright as a library: the use cases of the command line and the MCP server, as typed functions (docs/api.md).

A use case takes plain values and returns frozen records. It raises `hipwright.errors`, reports progress to a listener
(`hipwright.events`), and prints nothing. The main ones are `hipwright.optimize` and `hipwright.evaluate`.
"""
