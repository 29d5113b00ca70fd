"""Docstrings are written in the manner of Markdown; Sphinx reads reStructuredText."""

import re

# Code in single backticks; examples, which stay as they are, up to an empty line.
_CODE = r"(?<!`)`([^`]+)`(?!`)"
_EXAMPLE = r"^ *>>> .*?(?=\n\s*\n|\Z)"
# A name at the start of an entry of a section, such as "posterior_: ...", is the section's.
_ENTRY = r"^ +\*{0,2}\w+(?=:)"
_KEPT = re.compile(f"{_EXAMPLE}|{_CODE}|{_ENTRY}", re.MULTILINE | re.DOTALL)
_SPECIAL = re.compile(r"[*|\\]|(?<=\w)_(?!\w)|(?<!\w)_(?=\w)")


def restructured(text: str) -> str:
    """The same text in reStructuredText: code in double backticks, nothing else marked up."""
    parts, end = [], 0
    for found in _KEPT.finditer(text):
        parts.append(_SPECIAL.sub(r"\\\g<0>", text[end : found.start()]))
        code = found[1]
        parts.append(_literal(code, text[found.end() :]) if code else found[0])
        end = found.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\g<0>", text[end:])])


def _literal(code: str, after: str) -> str:
    """Inline code, with a break of no width before a letter that follows it, such as a plural's."""
    return f"``{code}``" + ("\\ " if re.match(r"[\w(]", after) else "")
