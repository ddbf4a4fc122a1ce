"""The program of DuckDuckGo's sandbox: `python -I -m tools.web.duckduckgo_worker`.

A request is a page of DuckDuckGo, the reply a JSON list of its results. The package ddgs
(https://github.com/deedy5/ddgs) knows the layout of the page.
"""

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urljoin, urlsplit

from ddgs.engines.duckduckgo import Duckduckgo
from ddgs.results import TextResult

from tools.sandbox.child import serve

_MAX_RESULTS: Final = 20
_MAX_ADDRESS_CHARACTERS: Final = 2_049  # an address of this length is left out as too long
_MAX_CHARACTERS: Final = 500
_HOME: Final = "https://duckduckgo.com/"


@dataclass
class _AsItStands(TextResult):
    """A result without the clean-up of ddgs, which decodes addresses once too often."""

    def __setattr__(self, name: str, value: str) -> None:
        object.__setattr__(self, name, value)


class _Page(Duckduckgo):
    """The parser of ddgs without the HTTP client that its constructor opens."""

    def __init__(self) -> None:
        pass

    @property
    def result_type(self) -> type[TextResult]:
        return _AsItStands

    def pre_process_html(self, html_text: str) -> str:
        """Make any text a document, because the parser refuses empty texts and XML."""
        return "<html>" + html_text


def results_on(page: str) -> str:
    """Return the results on a page as a JSON list of objects: `title`, `url`, `snippet`."""
    engine = _Page()
    found = engine.extract_results(page)
    for result in found:
        result.href = _target(result.href)
    wanted = [result for result in engine.post_extract_results(found) if result.href]
    return json.dumps(
        [
            {
                "title": " ".join(result.title.split())[:_MAX_CHARACTERS],
                "url": result.href[:_MAX_ADDRESS_CHARACTERS],
                "snippet": " ".join(result.body.split())[:_MAX_CHARACTERS],
            }
            for result in wanted[:_MAX_RESULTS]
        ],
        ensure_ascii=False,
    )


def _target(link: str) -> str:
    """Return the target of a link; some lead through `//duckduckgo.com/l/?uddg=…`."""
    if not link:
        return ""
    try:
        address = urlsplit(urljoin(_HOME, link))
    except ValueError:
        return ""
    if address.hostname == "duckduckgo.com" and address.path == "/l/":
        return parse_qs(address.query).get("uddg", [""])[0]
    return address.geturl()


if __name__ == "__main__":
    serve(results_on)
