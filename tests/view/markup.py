"""What every page must hold to, whatever text is in it."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class Elements(HTMLParser):
    """Every element's name and attributes, and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check_markup(text: str) -> None:
    """No script, style or address but the server's own; no hidden or reordering character; no id twice."""
    seen = Elements()
    seen.feed(text)
    for tag, attributes in seen.found:
        assert tag not in ("img", "style", "iframe", "object", "base"), tag
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        for name in ("src", "href", "action"):
            value = attributes.get(name) or ""
            assert not re.match(r"(?i)\s*[a-z]+:|//", value) or value == "data:,", (tag, value)
    assert [a.get("src") for tag, a in seen.found if tag == "script"] == ["/static/theme.js", "/static/view.js"]
    assert "\u202e" not in text and "\x1b" not in text
    ids = [attributes["id"] for _, attributes in seen.found if attributes.get("id")]
    assert len(ids) == len(set(ids))
