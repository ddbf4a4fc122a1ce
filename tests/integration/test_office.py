"""Office documents as text, through the sandbox that reads them."""

import pytest

from tests.fakes.office import (
    A,
    W,
    archive,
    docx,
    odt,
    paragraph,
    pptx,
    relations,
    row,
    xlsx,
)
from tools.documents.client import Read, open_reader
from tools.documents.office import MAX_PART_BYTES
from tools.sandbox.errors import WorkError


async def read(reader: Read, body: bytes) -> str:
    return (await reader(body, "", "")).text


def table(*rows: tuple[str, ...]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


READ = [
    (docx(paragraph("Dear ", "Ada,") + paragraph("hello")), "Dear Ada,\nhello"),
    (docx("<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/></w:r></w:p>"), "a\tb"),
    (
        docx(
            '<w:p><w:pPr><w:tabs><w:tab w:val="left" w:pos="9"/></w:tabs></w:pPr>'
            "<w:r><w:t>a</w:t></w:r></w:p>"
        ),
        "a",
    ),
    (docx(table(("a", "b"), ("c", "d")) + paragraph("e")), "a\tb\nc\td\ne"),
    (
        docx("<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>" + paragraph("x")),
        "x",
    ),
    (pptx("First", "Second"), "Slide 1:\nFirst\nSlide 2:\nSecond"),
    (
        xlsx(row("month", "sum") + row("May", 3) + row("", 3.5)),
        "Sheet Sums:\nmonth\tsum\nMay\t3\n\t3.5",
    ),
    (
        odt("<text:h>Title</text:h><text:p>a<text:tab/>b<text:span>c</text:span>d</text:p>"),
        "Title\na\tbcd",
    ),
    (odt('<text:p>a<text:s text:c="3"/>b<text:line-break/>c</text:p>'), "a   b\nc"),
]


TEXT_BOX = "<w:txbxContent>" + paragraph("box") + "</w:txbxContent>"
READ += [
    (
        docx(
            '<w:p xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
            "<w:r><w:t>around</w:t></w:r>"
            f"<mc:AlternateContent><mc:Choice>{TEXT_BOX}</mc:Choice>"
            f"<mc:Fallback>{TEXT_BOX}</mc:Fallback></mc:AlternateContent></w:p>"
        ),
        "box\naround",
    ),
    (
        docx(
            "<w:p><w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom></w:p>"
            + paragraph("between")
            + "<w:p><w:moveTo><w:r><w:t>moved</w:t></w:r></w:moveTo></w:p>"
        ),
        "between\nmoved",
    ),
    (pptx("Second", "First", order=(2, 1)), "Slide 1:\nFirst\nSlide 2:\nSecond"),
    (
        odt(
            "<text:tracked-changes><text:p>gone</text:p></text:tracked-changes>"
            "<text:p>a<office:annotation><text:p>a comment</text:p></office:annotation>b</text:p>"
        ),
        "ab",
    ),
    (
        xlsx(
            '<row><c r="B2"><v>0.075</v></c><c r="C2" s="1"><v>0.075</v></c>'
            '<c r="D2" s="2"><v>1</v></c></row>',
            styles=(
                '<numFmts><numFmt numFmtId="170" formatCode="0.0%"/></numFmts>'
                '<cellXfs><xf numFmtId="0"/><xf numFmtId="170"/><xf numFmtId="9"/></cellXfs>'
            ),
        ),
        "Sheet Sums:\n0.075\t7.5%\t100%",
    ),
]


def ods(rows: str) -> bytes:
    declared = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "text", "table")
    )
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "content.xml": (
                f'<office:document {declared}><table:table table:name="Sums">{rows}</table:table>'
                "</office:document>"
            ),
        }
    )


def ods_cell(shown: str, more: str = "") -> str:
    return f"<table:table-cell {more}><text:p>{shown}</text:p></table:table-cell>"


HALF = 'office:value-type="percentage" office:value="0.075"'
SPANNED = "<w:tc><w:tcPr><w:gridSpan w:val='2'/></w:tcPr>" + paragraph("both") + "</w:tc>"
SLIDE = '<p:sld {show} xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" {a}>'
READ += [
    (docx(f"<w:tbl><w:tr>{SPANNED}<w:tc>{paragraph('c')}</w:tc></w:tr></w:tbl>"), "both\t\tc"),
    (
        archive(
            {
                "word/document.xml": f"<w:document {W}>{paragraph('words')}</w:document>",
                "word/header1.xml": f"<w:hdr {W}>{paragraph('top')}</w:hdr>",
                "word/footer1.xml": f"<w:ftr {W}>{paragraph()}</w:ftr>",
            }
        ),
        "words\nHeader or footer:\ntop",
    ),
    (
        archive(
            {
                "ppt/presentation.xml": "<p/>",
                "ppt/slides/slide1.xml": (
                    SLIDE.format(show='show="0"', a=A)
                    + "<a:p><a:t>seen</a:t><a:fld><a:t>1</a:t></a:fld></a:p></p:sld>"
                ),
                "ppt/slides/_rels/slide1.xml.rels": relations(n="../notesSlides/notesSlide1.xml"),
                "ppt/notesSlides/notesSlide1.xml": f"<n {A}><a:p><a:t>said</a:t></a:p></n>",
            }
        ),
        "Slide 1 (hidden):\nseen\nNotes:\nsaid",
    ),
    (
        ods(
            f"<table:table-row>{ods_cell('7.5%', HALF)}"
            '<table:table-cell table:number-columns-repeated="2"/>'
            f"{ods_cell('27.11.26')}</table:table-row>"
            '<table:table-row table:number-rows-repeated="1048576"><table:table-cell/>'
            "</table:table-row>"
        ),
        "Sheet Sums:\n7.5%\t\t\t27.11.26",
    ),
    (
        odt(
            "<text:p>words<text:note><text:note-citation>1</text:note-citation><text:note-body>"
            "<text:p>a note</text:p></text:note-body></text:note> go on</text:p>"
        ),
        "a note\nwords go on",
    ),
    (xlsx(row("secret"), state="hidden"), "Sheet Sums (hidden):\nsecret"),
]


async def test_office_documents_become_text() -> None:
    async with open_reader() as reader:
        for body, text in READ:
            assert await read(reader, body) == text


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
NESTED = "<w:tbl><w:tr><w:tc>" * 300 + "</w:tc></w:tr></w:tbl>" * 300


HOSTILE = [
    docx("")[:60],
    docx("")[:-30],
    docx("<w:p>"),
    docx("<w:p/>" * 10),
    archive({"word/document.xml": b"\0" * (MAX_PART_BYTES + 1)}),
    archive({"word/document.xml": b"<a>" * 3_000_000}),
    archive({"word/document.xml": f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]><a {W}><w:p>&l9;'}),
    archive(
        {"word/document.xml": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><p>&x;</p>'}
    ),
    docx(NESTED),
    xlsx("<row><c t='s'><v>99999999999</v></c></row>" * 3)[:200],
    archive({"xl/workbook.xml": "<workbook/>"}),
    b"\xd0\xcf\x11\xe0" + "Workbook".encode("utf-16-le") + bytes(5_000),
]
"""Begun, cut, open, empty, a bomb, deep, a billion laughs, files, tables, wrong cells,
no sheets, old."""


async def test_broken_and_hostile_documents_are_refused_in_a_sentence() -> None:
    async with open_reader() as reader:
        for number, body in enumerate(HOSTILE):
            with pytest.raises(WorkError) as error:
                await read(reader, body)
            assert str(error.value).endswith("."), number
            assert "root:" not in str(error.value), number


async def test_large_document_is_cut_with_a_note() -> None:
    async with open_reader() as reader:
        for body in (docx(paragraph("x" * 1_000) * 2_000), xlsx(row("y" * 1_000) * 2_000)):
            document = await reader(body, "", "")
            assert 900_000 < len(document.text) <= 1_010_000
            assert document.note
