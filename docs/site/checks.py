"""Faults of a built site: links and anchors that lead nowhere, what a browser would fetch."""

import re
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ID = re.compile(r'\sid="([^"]*)"')
_LINK = re.compile(r'<a\s[^>]*?\bhref="([^"]*)"')
# What a browser fetches by itself, where an anchor only leads away.
_FETCHED = re.compile(r'<(?:link|script|img|iframe|source)\s[^>]*?\b(?:href|src)="([^"]*)"')
_IN_STYLES = re.compile(r"""(?:@import\s+|url\(\s*)["']?((?:https?:)?//[^"')\s]+)""")


def faults(site: Path) -> list[str]:
    """One line for each fault, with the page that has it."""
    site = site.resolve()
    pages = {path: path.read_text() for path in sorted(site.rglob("*.html"))}
    ids = {path: set(map(unescape, _ID.findall(text))) for path, text in pages.items()}

    @cache
    def resolved(folder: Path, link: str) -> tuple[Path, bool]:
        path = (folder / unquote(link)).resolve()
        return path, path.is_file()

    found = []
    for path, text in pages.items():
        fetched = set(map(unescape, _FETCHED.findall(text)))
        page = path.relative_to(site)
        found += [f"{page}: fetches {link}" for link in fetched if is_outside(link)]
        for link in fetched | set(map(unescape, _LINK.findall(text))):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target, exists = resolved(path.parent, parts.path) if parts.path else (path, True)
            if not exists:
                found.append(f"{page}: no {link}")
            elif parts.fragment and unquote(parts.fragment) not in ids.get(target, ()):
                found.append(f"{page}: no anchor {link}")
    for style in sorted(site.rglob("*.css")):
        found += [f"{style.name}: fetches {url}" for url in _IN_STYLES.findall(style.read_text())]
    return sorted(found)


def is_outside(link: str) -> bool:
    """Whether a browser would go to the network for it."""
    return bool(urlsplit(link).netloc)
