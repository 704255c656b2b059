"""hipwright as a library: what the command line and the MCP server do, as typed functions (docs/api.md).

A use case takes plain values and returns frozen records. It raises `hipwright.errors`, tells its progress to a
listener (`hipwright.events`), and prints nothing. The shortest ways in: `hipwright.optimize`, `hipwright.evaluate`.
"""
