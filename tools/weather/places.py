"""Choose the place that a text means, or ask: a name may belong to many places."""

import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tools.display import short_line
from tools.errors import InvalidArguments, ToolError
from tools.weather.open_meteo import Place

MAX_PLACE_CHARACTERS: Final = 100
CANDIDATES: Final = 10
CANDIDATES_IN_AREA: Final = 100  # the wanted place may be far down among its namesakes
CLEARLY_LARGER: Final = 5
REGION_WEIGHT: Final = 0.1  # "Washington" means the town as often as the state of that name
NEAR_DEGREES: Final = 0.3  # close enough for the same weather
MAX_LISTED: Final = 6
MAX_OTHERS: Final = 3

_NUMBER: Final = r"([+-]?\d{1,3}(?:\.\d{1,20})?)\s*°?\s*"
_COORDINATES: Final = re.compile(
    _NUMBER + r"([NS]?)\s*[,;]\s*" + _NUMBER + r"([EW]?)", re.IGNORECASE
)
_COUNTRIES: Final = {
    "US": {"usa", "united states of america", "america"},
    "GB": {"uk", "great britain", "britain"},
    "AE": {"uae", "emirates"},
}
_ABBREVIATIONS: Final = {
    "US": {
        "alabama": "al", "alaska": "ak", "arizona": "az", "arkansas": "ar", "california": "ca",
        "colorado": "co", "connecticut": "ct", "delaware": "de", "district of columbia": "dc",
        "florida": "fl", "georgia": "ga", "hawaii": "hi", "idaho": "id", "illinois": "il",
        "indiana": "in", "iowa": "ia", "kansas": "ks", "kentucky": "ky", "louisiana": "la",
        "maine": "me", "maryland": "md", "massachusetts": "ma", "michigan": "mi",
        "minnesota": "mn", "mississippi": "ms", "missouri": "mo", "montana": "mt",
        "nebraska": "ne", "nevada": "nv", "new hampshire": "nh", "new jersey": "nj",
        "new mexico": "nm", "new york": "ny", "north carolina": "nc", "north dakota": "nd",
        "ohio": "oh", "oklahoma": "ok", "oregon": "or", "pennsylvania": "pa",
        "rhode island": "ri", "south carolina": "sc", "south dakota": "sd", "tennessee": "tn",
        "texas": "tx", "utah": "ut", "vermont": "vt", "virginia": "va", "washington": "wa",
        "washington dc": "dc", "west virginia": "wv", "wisconsin": "wi", "wyoming": "wy",
    },
    "CA": {
        "alberta": "ab", "british columbia": "bc", "manitoba": "mb", "new brunswick": "nb",
        "newfoundland and labrador": "nl", "northwest territories": "nt", "nova scotia": "ns",
        "nunavut": "nu", "ontario": "on", "prince edward island": "pe", "quebec": "qc",
        "saskatchewan": "sk", "yukon": "yt",
    },
    "AU": {
        "australian capital territory": "act", "new south wales": "nsw",
        "northern territory": "nt", "queensland": "qld", "south australia": "sa",
        "tasmania": "tas", "victoria": "vic", "western australia": "wa",
    },
}  # fmt: skip
"""Postal abbreviations by country and `admin1`, in the form that `folded` returns."""

Search = Callable[[str, int], Awaitable[Sequence[Place]]]
"""Returns at most so many places of a name, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A place on the map; `others` are further places that the same name could mean."""

    name: str
    latitude: float
    longitude: float
    others: tuple[str, ...] = ()


class AmbiguousPlace(Exception):
    """Several places fit equally; the text asks which one."""


async def find(text: str, search: Search) -> Spot:
    """Return the place that a text means.

    Args:
        text: coordinates, or a name or postal code, followed by areas after commas.
        search: finds places by name.

    Raises:
        AmbiguousPlace: several places fit, and none clearly best.
        InvalidArguments: the text cannot be a place.
        ToolError: the place is unknown; the text says what to try.
    """
    text = short_line(text.replace("\N{MINUS SIGN}", "-"), MAX_PLACE_CHARACTERS)
    if coordinates := _COORDINATES.fullmatch(text):
        return _spot_at(coordinates)
    name, *areas = [part for piece in text.split(",") if (part := piece.strip())] or [""]
    if not name:
        raise InvalidArguments("The place is empty: send a town, a postal code or coordinates.")
    places = await search(name, CANDIDATES_IN_AREA if areas else CANDIDATES)
    within = [place for place in places if all(_lies_in(place, area) for area in areas)]
    if places and not within:
        # The service itself knows areas in many languages, but no abbreviations.
        within = list(await search(f"{name}, {areas[0]}", CANDIDATES))
    if within:
        return _clearest(name, _namesakes(name, within))
    if places:
        listed = "; ".join(_described(places[:MAX_LISTED]))
        raise ToolError(f"There is no {name} in {', '.join(areas)}. Places of that name: {listed}.")
    raise ToolError(
        f"No place named {name!r} was found. Check the spelling, leave out street and house "
        "number, or send a larger town nearby, a postal code, or coordinates such as 52.52, 13.41."
    )


def folded(name: str) -> str:
    """Return a name for comparison: without case, accents or dots, with single spaces."""
    decomposed = unicodedata.normalize("NFKD", name.replace(".", ""))
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return " ".join(re.split(r"[\W_]+", plain.casefold())).strip()


def _spot_at(coordinates: re.Match[str]) -> Spot:
    latitude, north, longitude, east = coordinates.groups()
    degrees_north = float(latitude) * (-1 if north.upper() == "S" else 1)
    degrees_east = float(longitude) * (-1 if east.upper() == "W" else 1)
    if abs(degrees_north) > 90 or abs(degrees_east) > 180:
        raise InvalidArguments(
            "Coordinates are a latitude from -90 to 90 and a longitude from -180 to 180."
        )
    return Spot(f"{degrees_north:g}, {degrees_east:g}", degrees_north, degrees_east)


def _lies_in(place: Place, area: str) -> bool:
    """Tell whether a place lies in an area: `Texas`, `TX`, `USA`, `Lamar County`, `75460`."""
    wanted = folded(area)
    country = place.country_code.upper()
    short = _ABBREVIATIONS.get(country, {}).get(folded(place.admin1))
    names = {folded(place.name), folded(place.country), folded(country), short}
    if wanted in names | _COUNTRIES.get(country, set()) or _has_postcode(place, wanted):
        return True
    areas = map(folded, (place.admin1, place.admin2, place.admin3, place.admin4))
    # "Lamar" means Lamar County as well.
    return any(
        f"{name} ".startswith(f"{wanted} ") or f"{wanted} ".startswith(f"{name} ")
        for name in areas
        if name
    )


def _has_postcode(place: Place, wanted: str) -> bool:
    has_digit = any(map(str.isdigit, wanted))  # cities have hundreds of codes to compare
    return has_digit and wanted in map(folded, place.postcodes)


def _namesakes(name: str, places: Sequence[Place]) -> Sequence[Place]:
    """Return the places that a name means, the weightiest first.

    These are the service's first choice, which may have the name in another language, and all
    places with exactly this name or postal code. The state around a city of its name is left out.
    """
    wanted = folded(name)
    called_so = [
        place
        for place in places
        if place is places[0] or folded(place.name) == wanted or _has_postcode(place, wanted)
    ]
    around = {area for place in called_so for area in _areas_around(place)}
    innermost = [place for place in called_so if place.id not in around] or called_so
    return sorted(innermost, key=_weight, reverse=True)


def _areas_around(place: Place) -> set[int | None]:
    areas = {place.country_id, place.admin1_id, place.admin2_id, place.admin3_id, place.admin4_id}
    return areas - {place.id}  # an area may name itself


def _clearest(name: str, namesakes: Sequence[Place]) -> Spot:
    place, *others = namesakes
    rivals = [other for other in others if not _is_near(place, other)]
    largest_rival = max(map(_weight, rivals), default=0)
    is_clear = 0 < _weight(place) >= CLEARLY_LARGER * largest_rival
    # Size says nothing about places that share a postal code.
    if rivals and (not is_clear or _has_postcode(place, folded(name))):
        listed = "; ".join(_described([place, *rivals][:MAX_LISTED]))
        raise AmbiguousPlace(
            f"{name}: which one? {listed}. "
            "Ask again with the region or country behind a comma, or with coordinates."
        )
    label, *other_labels = _described([place, *rivals[:MAX_OTHERS]])
    return Spot(label, place.latitude, place.longitude, tuple(other_labels))


def _weight(place: Place) -> float:
    return place.population * (REGION_WEIGHT if _is_region(place) else 1)


def _is_region(place: Place) -> bool:
    return place.feature_code.startswith(("ADM", "PCL"))  # GeoNames' codes of states and counties


def _is_near(one: Place, other: Place) -> bool:
    north, east = one.latitude - other.latitude, one.longitude - other.longitude
    return max(abs(north), abs(east)) < NEAR_DEGREES


def _described(places: Sequence[Place]) -> list[str]:
    """Return a label per place, with coordinates if names do not tell them apart."""
    labels = [
        ", ".join(dict.fromkeys(filter(None, (it.name, it.admin1, it.country or it.country_code))))
        for it in places
    ]
    count = Counter(labels)
    described = []
    for place, label in zip(places, labels, strict=True):
        details = ["the region"] if _is_region(place) else []
        if place.population > 0:
            details.append(f"pop. {place.population:,}")
        if count[label] > 1:
            details += filter(None, [place.admin2])
            details.append(f"{place.latitude:.2f}, {place.longitude:.2f}")
        described.append(f"{label} ({'; '.join(details)})" if details else label)
    return described
