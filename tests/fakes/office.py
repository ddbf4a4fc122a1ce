"""Office documents, made part by part."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
R = f'xmlns:r="{OFFICE}"'
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    """Return an archive of parts."""
    data = BytesIO()
    with ZipFile(data, "w", ZIP_DEFLATED) as file:
        for name, content in parts.items():
            # OpenDocument has this part at the beginning, as it is.
            file.writestr(name, content, ZIP_STORED if name == "mimetype" else None)
    return data.getvalue()


def docx(body: str) -> bytes:
    """Return a text of Word."""
    return archive({"word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>"})


def paragraph(*texts: str) -> str:
    """Return a paragraph of runs."""
    runs = "".join(f"<w:r><w:t>{text}</w:t></w:r>" for text in texts)
    return f"<w:p>{runs}</w:p>"


def relations(**targets: str) -> str:
    """Return the part that maps the ids in another part to further parts."""
    listed = "".join(f'<Relationship Id="{name}" Target="{to}"/>' for name, to in targets.items())
    return f'<Relationships xmlns="{RELATIONS}">{listed}</Relationships>'


def pptx(*slides: str, order: Sequence[int] = ()) -> bytes:
    """Return a presentation, each slide with one line; `order` has the numbers of their files."""
    numbers = order or range(1, len(slides) + 1)
    shown = "".join(f'<sldId r:id="r{number}"/>' for number in numbers)
    targets = {f"r{number}": f"slides/slide{number}.xml" for number in numbers}
    parts = {
        "ppt/presentation.xml": f"<p {R}>{shown}</p>",
        "ppt/_rels/presentation.xml.rels": relations(**targets),
    }
    for number, words in enumerate(slides, 1):
        line = f"<a:p><a:r><a:t>{words}</a:t></a:r></a:p>"
        parts[f"ppt/slides/slide{number}.xml"] = f"<s {A}>{line}</s>"
    return archive(parts)


def xlsx(rows: str, name: str = "Sums", styles: str = "", state: str = "visible") -> bytes:
    """Return a workbook of one sheet."""
    relation = f'<Relationship Id="r1" Type="{OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
    document = f'<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="xl/workbook.xml"/>'
    sheet = f'<sheet name="{name}" sheetId="1" state="{state}" r:id="r1"/>'
    return archive(
        {
            "_rels/.rels": f'<Relationships xmlns="{RELATIONS}">{document}</Relationships>',
            "xl/workbook.xml": f"<workbook {S} {R}><sheets>{sheet}</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": (
                f'<Relationships xmlns="{RELATIONS}">{relation}</Relationships>'
            ),
            "xl/worksheets/sheet1.xml": (
                f"<worksheet {S}><sheetData>{rows}</sheetData></worksheet>"
            ),
            "xl/styles.xml": f"<styleSheet {S}>{styles}</styleSheet>",
        }
    )


def row(*cells: str | float) -> str:
    """Return a row of words and numbers."""
    shown = (
        f'<c t="inlineStr"><is><t>{cell}</t></is></c>'
        if isinstance(cell, str)
        else f"<c><v>{cell}</v></c>"
        for cell in cells
    )
    return f"<row>{''.join(shown)}</row>"


def odt(body: str) -> bytes:
    """Return an OpenDocument text."""
    office = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    words = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    return archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"<office:document {office} {words}>{body}</office:document>",
        }
    )
