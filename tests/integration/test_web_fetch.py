"""Reading pages over HTTP as a model does: through an executor, a real server, a real sandbox."""

import re

import pytest

from tests.fakes.web_server import answer, redirect
from tests.integration.web_pages import Fetch, pdf, reading
from tools.settings import MAX_RESULT_BYTES
from tools.web.fetch import MAX_DOWNLOADED_BYTES

PARAGRAPH = (
    "The lighthouse was built in 1898 by masons from the mainland, who came over in spring "
    "and went home before the storms. Its light is seen for 21 miles in clear weather."
)
ARTICLE = f"""<!DOCTYPE html><html><head><title>The Lighthouse &amp; its keepers</title>
<script>var secret = "never shown";</script></head>
<body><nav><a href="/">Home</a><a href="/contact">Contact us</a></nav>
<article><h1>The Lighthouse</h1><p>{PARAGRAPH} <a href="/keepers">The keepers</a> lived below.</p>
<h2>Numbers</h2><table><tr><th>Year</th><th>Ships</th></tr><tr><td>1900</td><td>412</td></tr>
</table><ul><li>first lamp: oil</li><li>second lamp: electric</li></ul><p>{PARAGRAPH}</p></article>
<footer>Cookies and imprint</footer></body></html>"""
UNTRUSTED = re.compile(
    r"\[Untrusted content from web_fetch.*?\]\n(.*)\n\[Untrusted content", re.DOTALL
)


async def text_of(fetch: Fetch, url: str, **arguments: int) -> str:
    """Return the text for the model, without its frame."""
    result = await fetch(url, **arguments)
    assert result.outcome == "ok", result.content
    found = UNTRUSTED.search(result.content)
    assert found is not None
    return found[1]


async def test_an_article_is_read_as_markdown_under_its_title_and_address() -> None:
    async with reading({"/a": answer(ARTICLE.encode())}) as (server, fetch):
        text = await text_of(fetch, server.url("/a"))
    assert text.startswith(f"The Lighthouse & its keepers\n{server.url('/a')}\n\n")
    assert "# The Lighthouse" in text
    assert "## Numbers" in text
    assert f"[The keepers]({server.url('/keepers')})" in text
    assert "| 1900 | 412 |" in text
    assert "- first lamp: oil" in text
    assert "secret" not in text
    assert "Contact us" not in text
    assert "offset" not in text


async def test_a_page_without_main_text_yields_its_words_links_and_address() -> None:
    page = b"""<html><body><table><tr><td>1.</td><td><a href="/item/1">A story</a></td></tr>
    <tr><td>2.</td><td><a href="//127.0.0.1/2">Another</a> <a href="javascript:x()">vote</a></td>
    </tr></table><style>p { color: red }</style><noscript>no script</noscript></body></html>"""
    behaviours = {"/old": redirect("/new", 301), "/new": answer(page)}
    async with reading(behaviours) as (server, fetch):
        text = await text_of(fetch, server.url("/old"))
    assert text.startswith(server.url("/new"))
    assert f"1. [A story]({server.url('/item/1')})" in text
    assert "2. [Another](http://127.0.0.1/2) vote" in text
    assert "color" not in text


TEXTS = [
    ("one\n  two\n", "text/plain"),
    ('{"a": ["<b>", 1]}', "application/json"),
    ('{"@context": "x"}', "application/ld+json"),
    ("a,b\n1,2", "text/csv"),
    ("# Title\n\n- item", "text/markdown; charset=utf-8"),
    ("<rss><channel><title>News</title></channel></rss>", "application/rss+xml"),
    ('<?xml version="1.0"?><feed>x</feed>', "application/xml"),
    ("<svg><text>x</text></svg>", "image/svg+xml"),
    ("no type at all", None),
    ("not really a PDF", "application/pdf"),
    ("key: value", "application/octet-stream"),
]


async def test_texts_are_given_as_they_are() -> None:
    async with reading({}) as (server, fetch):
        for body, content_type in TEXTS:
            server.behaviours["/"] = answer(body.encode(), content_type)
            text = await text_of(fetch, server.url("/"))
            assert text == f"{server.url('/')}\n\n{body}".rstrip("\n")


LONG_PDF = pdf(*(f"Page {number}" for number in range(310)))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            pdf("The first page", "", "The third page", title="A paper"),
            "\n\nThe first page\n\nThe third page",
        ),
        (LONG_PDF, "Page 299\n\n[Only the first 300 of 310 pages were read.]"),
        # These need no password to be read.
        (pdf("For everybody", password="", algorithm="RC4-128"), "For everybody"),
        (pdf("For everybody", password="", algorithm="AES-256"), "For everybody"),
    ],
    ids=["page by page", "long", "RC4", "AES"],
)
async def test_a_pdf_is_read_page_by_page(document: bytes, words: str) -> None:
    page = answer(document, "application/pdf")
    async with reading({"/": page}) as (server, fetch):
        assert (await text_of(fetch, server.url("/"))).endswith(words)


RUSSIAN = "Привет, мир! Это страница про погоду и про море, написанная по-русски."
JAPANESE = "これは日本語のページです。天気と海について書いてあります。"


CHARACTER_SETS = [
    (RUSSIAN.encode("cp1251"), "text/html; charset=windows-1251", RUSSIAN),
    (RUSSIAN.encode("koi8-r"), 'text/plain; Charset="KOI8-R"', RUSSIAN),
    (RUSSIAN.encode("cp1251") * 5, "text/plain", RUSSIAN),
    (RUSSIAN.encode(), "text/plain; charset=nonsense", RUSSIAN),
    (RUSSIAN.encode(), "text/plain; charset=zlib", RUSSIAN),
    (RUSSIAN.encode("utf-16"), "text/plain", RUSSIAN),
    (RUSSIAN.encode("utf-16-le"), "text/plain; charset=utf-16-le", RUSSIAN),
    (b"\xef\xbb\xbf" + RUSSIAN.encode(), "text/plain; charset=latin-1", RUSSIAN),
    (b'<meta charset="shift_jis"><p>' + JAPANESE.encode("cp932"), "text/html", JAPANESE),
    (b"<meta charset=utf-16><p>" + JAPANESE.encode(), "text/html", JAPANESE),
    ("“Größe” €".encode("cp1252"), "text/plain; charset=iso-8859-1", "“Größe” €"),
    (JAPANESE.encode("cp932") * 5, "text/plain; charset=utf-8", JAPANESE),
    (b"caf\xe9 " + b"plain words " * 50, "text/plain; charset=utf-8", "caf\ufffd plain"),
]


async def test_character_sets_are_found_out() -> None:
    async with reading({}) as (server, fetch):
        for body, content_type, expected in CHARACTER_SETS:
            server.behaviours["/"] = answer(body, content_type)
            assert expected in await text_of(fetch, server.url("/"))


@pytest.mark.parametrize(
    ("status", "headers", "sentence"),
    [
        (404, {}, "There is no such page on this site (404)."),
        (410, {}, "There is no such page on this site (410)."),
        (401, {}, "The site does not let me read this page (401)."),
        (403, {}, "The site does not let me read this page (403)."),
        (429, {"Retry-After": "30"}, "slow down (429); try again in 30 seconds."),
        (429, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "(429); try again later."),
        (429, {"Retry-After": "9" * 5_000}, "(429); try again later."),
        (451, {}, "for legal reasons (451)."),
        (500, {}, "The site has a fault of its own (500); try again later."),
        (503, {"Retry-After": "5"}, "(503); try again in 5 seconds."),
        (418, {}, "The site answered 418 instead of a page."),
        (304, {}, "The site answered 304 instead of a page."),
    ],
)
async def test_a_refusal_of_the_site_is_explained_in_words(
    status: int, headers: dict[str, str], sentence: str
) -> None:
    page = answer(b"" if status == 304 else b"<h1>Sorry</h1>", status=status, headers=headers)
    async with reading({"/": page}) as (server, fetch):
        result = await fetch(server.url("/"))
    assert result.outcome == "failed"
    assert sentence in result.content


# Long pages


def long_text(paragraphs: int) -> str:
    return "\n\n".join(f"Paragraph {n}: {PARAGRAPH} Äöü — ende." for n in range(paragraphs))


async def read_all(fetch: Fetch, url: str) -> list[str]:
    """Follow the offsets as a model would; return the parts without head and note."""
    parts, offset = [], 0
    while True:
        text = await text_of(fetch, url, offset=offset)
        assert text.startswith(f"{url}\n\n")
        body, note = text.removeprefix(f"{url}\n\n").rsplit("\n\n", maxsplit=1)
        parts.append(body)
        assert note.startswith(f"[Characters {offset} to ")
        if not (following := re.search(r"For more call web_fetch with offset=(\d+)\.\]", note)):
            return parts
        assert int(following[1]) > offset
        offset = int(following[1])


@pytest.mark.parametrize("limit", [1_024, 4_096, MAX_RESULT_BYTES])
async def test_a_long_page_is_read_in_parts_that_fit_and_end_at_paragraphs(limit: int) -> None:
    whole = long_text(200)
    page = answer(whole.encode(), "text/plain")
    async with reading({"/": page}, result_limit_bytes=limit) as (server, fetch):
        result = await fetch(server.url("/"))
        assert limit - 900 < len(result.content.encode()) <= limit
        assert "Cut" not in result.content
        parts = await read_all(fetch, server.url("/"))
        assert len(server.asked) == 2  # each reading from the start is one download
    assert "\n\n".join(parts) == whole
    assert len(parts) > 1


async def test_a_long_line_is_cut_without_losing_a_character() -> None:
    whole = "😀" * 20_000
    async with reading({"/": answer(whole.encode(), "text/plain")}) as (server, fetch):
        parts = await read_all(fetch, server.url("/"))
    assert "".join(parts) == whole


async def test_an_offset_beyond_the_end_is_reported() -> None:
    async with reading({"/": answer(b"short", "text/plain")}) as (server, fetch):
        result = await fetch(server.url("/"), offset=5)
        assert result.content == "The page ends at character 5; there is nothing at 5."
        result = await fetch(server.url("/"), offset=-1)
        assert result.outcome == "invalid"


async def test_a_page_is_fetched_again_at_its_start_and_cached_for_its_parts() -> None:
    async with reading({"/": answer(b"first version", "text/plain")}) as (server, fetch):
        assert "first version" in await text_of(fetch, server.url("/"))
        server.behaviours["/"] = answer(b"second version", "text/plain")
        assert "version" in await text_of(fetch, server.url("/"), offset=5)
        assert len(server.asked) == 1
        assert "second version" in await text_of(fetch, server.url("/"))
        for number in range(8):  # as many as are kept
            server.behaviours[f"/{number}"] = answer(b"another page", "text/plain")
            await text_of(fetch, server.url(f"/{number}"))
        asked = len(server.asked)
        await text_of(fetch, server.url("/7"), offset=1)
        assert len(server.asked) == asked
        await text_of(fetch, server.url("/"), offset=1)
        assert len(server.asked) == asked + 1


async def test_the_largest_page_is_read_in_time_and_its_end_is_said() -> None:
    paragraph = f"<p>{PARAGRAPH} <a href='/next'>next</a></p>".encode()
    body = b"<html><body><article>" + paragraph * (MAX_DOWNLOADED_BYTES // len(paragraph) - 1)
    async with reading({"/": answer(body)}) as (server, fetch):
        text = await text_of(fetch, server.url("/"))
        assert " of 1000000. For more call web_fetch" in text
        assert "[Only the first 1000000 characters were read.]" in text
        assert "lighthouse" in await text_of(fetch, server.url("/"), offset=990_000)
        assert len(server.asked) == 1
