"""What MkDocs runs while it builds the site (mkdocs.yml, `hooks`).

Pages of `docs/` link to files beside it (CONTRIBUTING.md, a sample's card), as they do on a code host. Here those
files join the site: Markdown as pages, others as plain files. The page of commands is written from the application.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = "repository/"
"""Where files that lie outside of `docs/` are in the site."""
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """Adds the files that pages link to, and the page of commands."""
    found = [path for path in PAGES if (ROOT / path).is_file()]
    while found:
        path = found.pop()
        uri = uri_of(path)
        if path.startswith("docs/") or files.get_file_from_path(uri):
            continue
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            found += links(path)
    for file in files.documentation_pages():
        if file.generated_by is None:
            for path in links(f"docs/{file.src_uri}"):
                if not path.startswith("docs/") and not files.get_file_from_path(uri_of(path)):
                    files.append(File.generated(config, uri_of(path), abs_src_path=str(ROOT / path)))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between the repository's files as links between the site's."""
    here = page.file.src_uri
    path = here.removeprefix(OUTSIDE) if here.startswith(OUTSIDE) else f"docs/{here}"
    if path == "docs/reference/commands.md":
        return markdown

    def moved(match: re.Match[str]) -> str:
        uri = uri_of(resolved(path, match[1]))
        return f"]({posixpath.relpath(uri, posixpath.dirname(here))}{match[2] or ''})"

    parts = _CODE.split(markdown)
    return "".join(part if at % 2 else _LINK.sub(moved, part) for at, part in enumerate(parts))


def links(path: str) -> list[str]:
    """The repository's files that a page of it links to."""
    prose = _CODE.sub("", (ROOT / path).read_text(encoding="utf-8"))
    found = (resolved(path, match[1]) for match in _LINK.finditer(prose))
    return sorted({one for one in found if (ROOT / one).is_file()})


def resolved(path: str, target: str) -> str:
    """The path in the repository that a link of a page means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def uri_of(path: str) -> str:
    """The place in the site of a file of the repository."""
    return path.removeprefix("docs/") if path.startswith("docs/") else OUTSIDE + path


def commands() -> str:
    """The page of every command with its options, from the application itself."""
    os.environ.update(COLUMNS="96", NO_COLOR="1", TERM="dumb")
    import typer

    from hipwright.cli.main import app

    explained = "Written from the program when the site is built; [the command line](../cli.md) explains."
    sections = _sections(typer.main.get_command(app), "hipwright", None)
    return f"# All commands and options\n\n{explained}\n{''.join(sections)}"


def _sections(command: Any, name: str, parent: Any) -> list[str]:
    context = command.context_class(command, info_name=name.split()[-1], parent=parent, **command.context_settings)
    text = command.get_help(context).rstrip()
    level = "##" if name.count(" ") < 2 else "###"
    found = [f"\n{level} `{name}`\n\n```text\n{text}\n```\n"]
    for child in getattr(command, "commands", {}):
        found += _sections(command.commands[child], f"{name} {child}", context)
    return found
