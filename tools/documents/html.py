"""HTML to text: the main text by trafilatura, or else all words. Runs inside the sandbox."""

import re
from collections.abc import Sequence
from contextlib import suppress
from html import unescape
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

from trafilatura import extract

from tools.documents.document import TimeIsUp, time_bound

ARTICLE_SECONDS: Final = 3.0
EVERYTHING_SECONDS: Final = 2.0
MAX_ARTICLE: Final = 1_500_000  # characters; beyond, single steps of lxml take seconds
_SHORT_ARTICLE: Final = 250
_LONGEST_TITLE: Final = 200
_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{0,1000})</title", re.IGNORECASE)
_HEAD_CHARACTERS: Final = 100_000
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
    collector = _Collector(url)
    with suppress(TimeIsUp), time_bound(EVERYTHING_SECONDS):
        collector.feed(html.replace("<![", "<!-["))  # the parser gives up at unknown sections
        collector.close()
    lines = (" ".join(line.split()) for line in "".join(collector.pieces).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Collector(HTMLParser):
    """Collects the words of a page, blocks on lines of their own, links with their addresses."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._url = url
        self._silent = ""
        self._link = ""

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if not self._silent and tag in _SILENT:
            self._silent = tag
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        elif tag in {"td", "th"}:
            self.pieces.append(" ")
        elif tag == "a" and not self._silent:
            self._link = self._target(dict(attrs).get("href") or "")
            self.pieces.append("[" if self._link else "")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self._silent = ""
        elif tag in _BLOCKS:
            self.pieces.append("\n")
        elif tag == "a" and self._link:
            self.pieces.append(f"]({self._link})")
            self._link = ""

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.pieces.append(data)

    def _target(self, reference: str) -> str:
        try:
            target = urljoin(self._url, reference.strip())
        except ValueError:
            return ""
        return target if target.startswith(("http://", "https://")) else ""
