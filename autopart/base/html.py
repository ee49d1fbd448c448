"""HTML for readers: the only functions that write text of others into a page.

    table_html(["tactic", "step"], [["BP <b>", "2 s"]])      <table>... BP &lt;b&gt; ...</table>

A name may come from a file, and so may be anything; `escaped` leaves no character that ends text, an attribute or a
script, and no control character.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

from autopart.base.quoting import one_line


def escaped(text: object) -> str:
    """The text as it may stand between tags and in quoted attributes.

    >>> escaped('<script>"&\\n')
    '&lt;script&gt;&quot;&amp;\\\\n'
    """
    return html.escape(one_line(str(text)), quote=True)


def json_in_script(data: Any) -> str:
    """Data as it may stand in a `<script type="application/json">`: no `<`, which could end it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def cells(tag: str, texts: Iterable[object]) -> str:
    """A row of cells, each text escaped."""
    return "<tr>" + "".join(f"<{tag}>{escaped(text)}</{tag}>" for text in texts) + "</tr>"


def table_html(header: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A plain table, all of it escaped."""
    head = f"<caption>{escaped(caption)}</caption>" if caption else ""
    body = "".join(cells("td", row) for row in rows)
    return f"<table>{head}<thead>{cells('th', header)}</thead><tbody>{body}</tbody></table>"


def lines_html(lines: Iterable[object]) -> str:
    """Lines as a list; nothing where there are none."""
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""
