"""HTML to text: the main text by trafilatura, or else all words. Runs inside the sandbox."""

import re
from contextlib import suppress
from html import unescape
from typing import Final
from urllib.parse import urljoin

from trafilatura import extract, load_html

from tools.documents.document import TimeIsUp, time_bound

ARTICLE_SECONDS: Final = 3.0
EVERYTHING_SECONDS: Final = 2.0
MAX_ARTICLE: Final = 1_500_000  # characters; beyond, single steps of lxml take seconds
_SHORT_ARTICLE: Final = 250
_LONGEST_TITLE: Final = 200
_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{0,1000})</title", re.IGNORECASE)
_HEAD_CHARACTERS: Final = 100_000
_CELLS: Final = frozenset({"td", "th"})
_SILENT: Final = frozenset({"script", "style", "noscript", "template", "svg", "title"})
_BLOCKS: Final = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset",
        "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
        "hr", "li", "main", "nav", "ol", "option", "p", "pre", "section", "table", "tr", "ul",
    }
)  # fmt: skip


def title_of(html: str) -> str:
    """Return a page's title on one line, or an empty text."""
    found = _TITLE.search(html[:_HEAD_CHARACTERS])
    return " ".join(unescape(found[1]).split())[:_LONGEST_TITLE] if found else ""


def text_of(html: str, url: str) -> str:
    """Return a page's main text as Markdown; without a main text, all its words and links."""
    html = html.replace("\0", "")
    article = _article(html, url)
    if len(article) >= _SHORT_ARTICLE:
        return article
    everything = _everything(html, url)
    return article if article and len(everything) < 2 * len(article) else everything


def _article(html: str, url: str) -> str:
    if len(html) > MAX_ARTICLE:
        return ""
    try:
        with time_bound(ARTICLE_SECONDS):
            text = extract(
                html,
                url=url,
                output_format="markdown",
                include_comments=False,
                include_links=True,
                favor_recall=True,
            )
    except TimeIsUp:
        return ""
    except OSError:
        raise  # not the page's fault: a part of the library was not loaded in time
    except Exception:  # a page may be made to trip the library; its words are left
        return ""
    return text or ""


def _everything(html: str, url: str) -> str:
    """Return the words of a page, with blocks on lines of their own, and links with addresses."""
    tree = load_html(f"<html>{html}")  # otherwise it takes pieces of a page for other data
    if tree is None:
        return ""
    with suppress(TimeIsUp), time_bound(EVERYTHING_SECONDS):
        for silent in list(tree.iter(*_SILENT)):
            silent.drop_tree()
        for element in tree.iter():
            space = "\n" if element.tag in _BLOCKS else " " if element.tag in _CELLS else ""
            if space:
                element.text = space + (element.text or "")
                element.tail = space + (element.tail or "")
            elif element.tag == "a" and (target := _target(url, element.get("href", ""))):
                element.text = f"[{element.text or ''}"
                element.tail = f"]({target}){element.tail or ''}"
    lines = (" ".join(line.split()) for line in tree.text_content().split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _target(url: str, reference: str) -> str:
    try:
        target = urljoin(url, reference.strip())
    except ValueError:
        return ""
    return target if target.startswith(("http://", "https://")) else ""
