"""What a self-contained HTML page may do in a browser."""

from __future__ import annotations

import base64
import hashlib


def page_policy(css: str, script: str, served: bool = False, images: str = "data:") -> str:
    """Content security policy: these very styles and this very script, and no connection but to who serves it.

    Args:
        css, script: all of them.
        served: the page may speak to who serves it.
        images: where pictures come from: the page itself, or ``'self'`` for who serves it.
    """
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (css, script)
    )
    rules = (
        "default-src 'none'",
        f"img-src {images}",
        f"style-src 'sha256-{style_hash}'",
        f"script-src 'sha256-{script_hash}'",
        *(["connect-src 'self'"] if served else []),
    )
    return "; ".join((*rules, "base-uri 'none'", "form-action 'none'"))
