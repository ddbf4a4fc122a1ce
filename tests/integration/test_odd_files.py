"""Files in old encodings, forms, deep greys and libraries that abort, through their sandboxes."""

import zlib
from base64 import b85decode
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from pypdf import PdfWriter
from pypdf.generic import (
    ArrayObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NumberObject,
    TextStringObject,
)
from structlog.testing import capture_logs

from tests.fakes.office import xlsx
from tests.integration.test_workspace import workspace
from tests.unit.test_images import opened, read_once, saved
from tools.documents.client import open_reader
from tools.sandbox.errors import WorkError

WESTERN = ["Währung;Betrag", "Räksmörgås på båten", "Größe", "“Ça va?” déjà vu, 5 €", "ÄÖÜ und ß"]
RUSSIAN = "Сегодня утром мы купили овощи и хлеб, чтобы приготовить обед для всей семьи. " * 5


@pytest.mark.parametrize("text", WESTERN)
async def test_western_bytes_are_read_as_written_in_files_and_documents(
    text: str, tmp_path: Path
) -> None:
    data = text.encode("cp1252")
    async with open_reader() as read:
        assert (await read(data, "text/csv", "")).text == text
        assert (await read(data, "application/octet-stream", "")).text == text
    async with workspace(tmp_path) as (here, files):
        await here.do("list_files")
        (files / "a.csv").write_bytes(data)
        assert await here.do("read_file", file_path="a.csv") == f"1\t{text}"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("größer als 5 €", "utf-8"),
        ("größer als 5 €", "utf-8-sig"),
        ("größer als 5 €", "utf-16"),
        (RUSSIAN, "cp1251"),
    ],
)
async def test_other_encodings_are_recognised(text: str, encoding: str) -> None:
    async with open_reader() as read:
        found = await read(text.encode(encoding), "text/plain", "")
    assert found.text.split() == text.split()


async def test_declared_encoding_counts() -> None:
    async with open_reader() as read:
        found = await read("Привет".encode("koi8-r"), "text/plain; charset=koi8-r", "")
    assert found.text == "Привет"


def field(kind: str, name: str, value: object) -> DictionaryObject:
    return DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Annot"),
            NameObject("/Subtype"): NameObject("/Widget"),
            NameObject("/FT"): NameObject(kind),
            NameObject("/T"): TextStringObject(name),
            NameObject("/V"): value,
            NameObject("/Rect"): ArrayObject([FloatObject(n) for n in (0, 0, 90, 20)]),
        }
    )


def form() -> bytes:
    writer = PdfWriter()
    page = writer.add_blank_page(200, 200)
    fields = [
        field("/Tx", "Name", TextStringObject("Ada")),
        field("/Tx", "Empty", TextStringObject("")),
        field("/Btn", "Member", NameObject("/Yes")),
        field("/Btn", "Guest", NameObject("/Off")),
        field("/Ch", "Colours", ArrayObject([TextStringObject("red"), TextStringObject("blue")])),
    ]
    listed = ArrayObject([writer._add_object(one) for one in fields])
    page[NameObject("/Annots")] = listed
    writer._root_object[NameObject("/AcroForm")] = DictionaryObject(
        {NameObject("/Fields"): listed, NameObject("/SigFlags"): NumberObject(0)}
    )
    written = BytesIO()
    writer.write(written)
    return written.getvalue()


async def test_filled_fields_of_a_form_are_read() -> None:
    async with open_reader() as read:
        found = await read(form(), "application/pdf", "")
    assert found.text == "Name: Ada\nMember: Yes\nColours: red, blue"


OLD_WORKBOOK = (
    "c-p&gUhu)fjZzO8(10BSGsD0CoD6J8VvIn{3F8Pb0OkMx2QgtZ2N3@s1w#sOasVTejg?_H?-_Pb9D?HeAp;Y`29|?B"
    "l7Zn75XUeSF!<%?r7F-7IDy@e$Ov+SEs$hnm;)5yV~_;9N(f9QgGpg9xgM-?514cSi}Zp?TcFwpj8P2d?ftYYps6^5"
    "NeL{+#{e>SJ6O*xu!tdpD8mU*Dz2Zv2vN(*;8>KIm@~vA<XCtZmM{P#)IBvXwFt!LWLV0;!oXmlXQ29kK?E4hOBlZX"
    "S72cH0?W?_6h_7AE6&IO6#s!L&JK(wY~mbP)K6vtMrZ@W{{(RMXl3ALc+U)yVP^2pN%_OT4=%4k7^tiywW5RzRD6T8"
    "y8udd=LKg29w3<l)C6J+f-{2v(AGaIKVI@p3b2m{i!^|Xc!;5@Aln)KGc<y905$W0WtiZk7MRoqlTBb#rNL||Few5|"
    "sX$sSKorVwYX+-n0n4fZ?J)*}%l7I>Yz-j0^>yG5xz@+_nn3nC_lH#?>#o}`WKaTDOesM9AlS^H!>GeJYbFTnw1?4*"
    "&_d%bn3TjQKscBLpl<&Ut?l?3n4!KBgt}m}eH{}Q*#ANdubClwAc2g~^Ou1OEG7i0Mwx^dwt)l10jVP8Vi*OZU=)mk"
    "Q7{Td!6+C7qhLS)Bec2B4CyBTTjP*U0XuYD=PwZd8yzMYwjhWh9|%i;T}xMnJRn`fP)Sny5o2Iwgqg)iq#oFKAqa#6"
    "Z7*WTW=I0NBb(&(3+&V}BKwDEjRMrmLZsUNj}&*(*nR*?X2*#"
)
"""An .xls file with 7.5 %, 2.5 and a text, deflated, in base 85."""


async def test_percentages_of_old_workbooks_are_read() -> None:
    async with open_reader() as read:
        found = await read(zlib.decompress(b85decode(OLD_WORKBOOK)), "application/vnd.ms-excel", "")
    assert found.text == "Sheet Old:\n7.5%\t2.5\ntext"


async def test_library_that_aborts_is_no_attack() -> None:
    cells = ((1, "A1"), (1_048_576, "XFD1048576"))
    far = "".join(f'<row r="{n}"><c r="{place}"><v>1</v></c></row>' for n, place in cells)
    async with open_reader() as read:
        with capture_logs() as logged, pytest.raises(WorkError, match="too large"):
            await read(xlsx(far), "", "")
        assert (await read(b"still there", "text/plain", "")).text == "still there"
    assert "sandbox.escape_stopped" not in [entry["event"] for entry in logged]


async def test_grey_of_sixteen_bits_keeps_its_shades() -> None:
    image = Image.new("I", (32, 16), 0x4000)
    image.paste(0xC000, (16, 0, 32, 16))
    shown = opened(await read_once(saved(image.convert("I;16"), "PNG"))).convert("L")
    assert shown.getextrema() == (0x40, 0xC0)
