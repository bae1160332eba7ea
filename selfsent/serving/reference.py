"""The page /docs: every route with its keys, as /openapi.json describes them.  It loads nothing from elsewhere."""

from html import escape
from typing import Any

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>selfsent: routes</title>
<meta name="viewport" content="width=device-width"><style>:root {{ color-scheme: light dark; font: 15px system-ui }}
body {{ max-width: 52rem; margin: 2rem auto; padding: 0 1rem }} td {{ padding-right: .8rem; vertical-align: top }}
h2 {{ font-size: 1rem; margin-bottom: .2rem }}</style><h1>Routes</h1>
<p>The same as <a href="openapi.json">OpenAPI</a>.</p>{}</html>"""


def reference_page(schema: dict[str, Any]) -> str:
    """Return the page of an OpenAPI schema."""
    return _PAGE.format(
        "".join(
            f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(route.get('description', ''))}</p>"
            f"<table>{_keys(schema, route)}</table>"
            for path, methods in schema["paths"].items()
            for method, route in methods.items()
        )
    )


def _keys(schema: dict[str, Any], route: dict[str, Any]) -> str:
    reference = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    body = schema.get("components", {}).get("schemas", {}).get(reference.get("$ref", "").rpartition("/")[2], {})
    return "".join(
        f"<tr><td><code>{escape(key)}</code><td>{'required' if key in body.get('required', ()) else ''}"
        f"<td>{escape(value.get('description', ''))}"
        for key, value in body.get("properties", {}).items()
    )
