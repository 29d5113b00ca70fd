"""Faults of a built site: links and anchors that lead nowhere, what a browser would fetch."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself, where an anchor only leads away.
_FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_IN_STYLES = re.compile(r"""(?:@import\s+|url\(\s*)["']?((?:https?:)?//[^"')\s]+)""")


class _Page(HTMLParser):
    """Identifiers of a page, links of it, and what it makes a browser fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given["id"] or ""} if "id" in given else set()
        if tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")
        if given.get(_FETCHED.get(tag, "")):
            self.fetched.append(given[_FETCHED[tag]] or "")


def faults(site: Path) -> list[str]:
    """One line for each fault, with the page that has it."""
    pages = {path.resolve(): _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.scheme != "data":
                    found.append(f"{path.relative_to(site.resolve())}: fetches {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            at = unquote(parts.fragment)
            if not target.is_file():
                found.append(f"{path.relative_to(site.resolve())}: no {link}")
            elif at and target in pages and at not in pages[target].ids:
                found.append(f"{path.relative_to(site.resolve())}: no anchor {link}")
    for style in sorted(site.rglob("*.css")):
        found += [f"{style.name}: fetches {url}" for url in _IN_STYLES.findall(style.read_text())]
    return found
