"""The description of the API as one page, from its OpenAPI schema."""

import json
from html import escape
from typing import Any

HEAD = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>mtnet: API</title><link rel="stylesheet" href="/page/style.css">
<main class="docs"><h1>API</h1>
<p>The same as a schema: <a href="/openapi.json">openapi.json</a>.</p>"""


def docs_page(schema: dict[str, Any]) -> str:
    """One section per route, then the bodies that they name."""
    parts = [HEAD]
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            parts.append(f"<h2><code>{method.upper()} {escape(path)}</code></h2>")
            parts.append(f"<p>{escape(route.get('description', ''))}</p>")
            body = _body(route.get("requestBody", {}))
            parts.append(f"<p>Body: {body}</p>" if body else "")
            answers = ", ".join(
                f"{status} {_body(answer)}" for status, answer in route["responses"].items()
            )
            parts.append(f"<p>Answers: {answers}</p>")
    parts.append("<h2>Bodies</h2>")
    for name, body in schema["components"]["schemas"].items():
        text = escape(json.dumps(body.get("properties", {}), indent=1))
        parts.append(f'<h3 id="{name}">{name}</h3><pre>{text}</pre>')
    return "\n".join([*parts, "</main></html>"])


def _body(of: dict[str, Any]) -> str:
    """A link to the body of a request or an answer, if it has one by name."""
    ref = of.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    name = ref.rpartition("/")[2]
    return f'<a href="#{name}">{name}</a>' if name else ""
