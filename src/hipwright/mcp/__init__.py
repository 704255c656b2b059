"""hipwright for people with a coding agent: an MCP server over stdio (docs/mcp.md)."""

from __future__ import annotations

from pathlib import Path

SKILL = Path(__file__).with_name("SKILL.md")
"""A short page that tells a coding agent how to work with the server's tools."""
