"""A self-contained HTML page: text, tables and figures in one file, without links."""

import base64
import html
import io
from collections.abc import Sequence

from matplotlib.figure import Figure

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child, .texts th, .texts td { text-align: left; vertical-align: top }
.wide { overflow-x: auto } img { max-width: 100% } code, pre { background: #f5f5f5 }
figure { margin: 0 0 1rem } figcaption { color: #555; font-size: 13px } li { margin: .3rem 0 }
.gallery { display: flex; flex-wrap: wrap; gap: 0 1rem } .gallery figure { max-width: 26rem }
pre { padding: .6rem; overflow-x: auto; font-size: 12px } .published { color: #777 }
"""


def heading(text: str) -> str:
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def pre(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, texts: bool = False) -> str:
    """A table; columns are aligned right, or left if they are texts."""

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    kind = ' class="texts"' if texts else ""
    return f'<div class="wide"><table{kind}>{line("th", header)}{body}</table></div>'


def figure(plot: Figure, caption: str, dpi: int = 110) -> str:
    buffer = io.BytesIO()
    plot.savefig(buffer, format="png", dpi=dpi)
    data = base64.b64encode(buffer.getvalue()).decode()
    text = html.escape(caption)
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{text}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def gallery(figures: Sequence[str]) -> str:
    """Figures side by side, as many as fit; below each other on a narrow screen."""
    return f'<div class="gallery">{"".join(figures)}</div>'


def bullets(texts: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in texts) + "</ul>"


def page(title: str, parts: Sequence[str]) -> str:
    name = html.escape(title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{STYLE}</style></head><body><h1>{name}</h1>"
        + "".join(parts)
        + "</body></html>\n"
    )
