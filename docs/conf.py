"""How the pages of this folder become a site: `make docs`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel

import schemarouter
from schemarouter.cli.app import app

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "SchemaRouter Research"
author = project
version = release = schemarouter.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# Quotes are made round, two dashes of an option stay two.
smartquotes_action = "qe"
html_theme = "furo"
html_title = project
html_copy_source = False
myst_heading_anchors = 3
# One backtick in a docstring is code.
default_role = "code"
# Attributes that a docstring lists stand in it, and not a second time beside those that have one of their own.
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
autodoc_default_options = {"exclude-members": "model_config"}
# Types and exceptions that docstrings name may be of another package; whatever else is linked has to be there.
nitpicky = True
nitpick_ignore_regex = [("py:(class|exc)", ".*")]
DOCS = Path(__file__).resolve().parent
LINK_TO_PAGE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]+\.md)(?:#[^)]*)?\)")
COMMAND_LINE = "reference/command-line"


def setup(application: Sphinx) -> None:
    """What is done to pages and docstrings on their way into the site."""
    application.connect("source-read", _read)
    application.connect("autodoc-process-signature", _shorten)
    application.connect("autodoc-process-docstring", _rejoin, priority=900)


def _read(application: Sphinx, page: str, source: list[str]) -> None:
    if page == COMMAND_LINE:
        source[0] += command_line()
    source[0] = LINK_TO_PAGE.sub(partial(_outward, (DOCS / page).parent), source[0])


def _outward(folder: Path, link: re.Match[str]) -> str:
    # A page that is not of the site is offered as a file, as Sphinx does by itself with whatever is no page.
    inside = (folder / link[2]).resolve().is_relative_to(DOCS)
    return link[0] if inside else f"{{download}}`{link[1]} <{link[2]}>`"


def _shorten(application: Sphinx, what: str, name: str, item: Any, *rest: Any) -> tuple[str, str] | None:
    # The fields of a document stand below it, each with its type.
    return ("", "") if what == "class" and issubclass(item, BaseModel) else None


def _rejoin(application: Sphinx, what: str, name: str, item: Any, options: Any, lines: list[str]) -> None:
    # Napoleon takes what stands before a colon in the first line for the type of an attribute.
    taken = [line for line in lines if line.startswith(":type: ")]
    if what in ("attribute", "property") and taken:
        lines[:] = [
            f"{taken[0].removeprefix(':type: ')}: {lines[0]}",
            *(line for line in lines[1:] if line not in taken),
        ]


def command_line() -> str:
    """Every command as the program itself declares it, in Markdown."""
    program: Any = typer.main.get_command(app)
    return "\n".join(_command(program, typer.Context(program, info_name="schemarouter")))


def _command(command: Any, context: Any) -> Iterator[str]:
    """The lines of a command, and of the commands under it."""
    yield f"\n## {context.command_path}\n\n{command.help}\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    for parameter in command.params:
        name, said = parameter.get_help_record(context)
        yield f"- `{name}`: {said}"
    for name, part in getattr(command, "commands", {}).items():
        yield from _command(part, typer.Context(part, info_name=name, parent=context))
