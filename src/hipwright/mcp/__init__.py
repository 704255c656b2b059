"""An MCP server over stdio for coding agents (docs/mcp.md)."""

from __future__ import annotations

from pathlib import Path

SKILL = Path(__file__).with_name("SKILL.md")
"""A short page that tells a coding agent how to work with the server's tools."""
