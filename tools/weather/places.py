"""Which place is meant: a name may be that of many, and a wrong one is worse than a question."""

import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tools.errors import InvalidArguments, ToolError
from tools.weather.answers import Place, one_line
from tools.weather.areas import ABBREVIATIONS, COUNTRIES

MAX_PLACE_CHARACTERS: Final = 100
CANDIDATES: Final = 10
CANDIDATES_OF_AREAS: Final = 100  # the wanted one may be far down among places of its name
CLEARLY_LARGER: Final = 5
AREA_WEIGHT: Final = 0.1  # who says Washington means the town as often as the state around another
NEAR_DEGREES: Final = 0.3  # has the same weather
MAX_LISTED: Final = 6
MAX_OTHERS: Final = 3

_NUMBER: Final = r"([+-]?\d{1,3}(?:\.\d{1,20})?)\s*°?\s*"
_COORDINATES: Final = re.compile(
    _NUMBER + r"([NS]?)\s*[,;]\s*" + _NUMBER + r"([EW]?)", re.IGNORECASE
)

Search = Callable[[str, int], Awaitable[Sequence[Place]]]
"""Returns at most so many places of a name, the likeliest first."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where the weather is wanted.

    Attributes:
        name: what the place is called, with its region and country.
        latitude: in degrees, north is positive.
        longitude: in degrees, east is positive.
        others: places that the same name could have meant.
    """

    name: str
    latitude: float
    longitude: float
    others: tuple[str, ...] = ()


class AmbiguousPlace(Exception):
    """Several places are meant equally; the text asks which one."""


async def find(text: str, search: Search) -> Spot:
    """Return the place that a text means.

    Args:
        text: coordinates, or a name or postal code, with areas that it lies in behind commas.
        search: finds places by name.

    Raises:
        AmbiguousPlace: there are several, and none is clearly the one.
        InvalidArguments: it cannot be a place.
        ToolError: there is no such place; the text says what to try.
    """
    text = one_line(text.replace("\N{MINUS SIGN}", "-"), MAX_PLACE_CHARACTERS)
    if coordinates := _COORDINATES.fullmatch(text):
        return _spot_at(coordinates)
    name, *areas = [part for piece in text.split(",") if (part := piece.strip())] or [""]
    if not name:
        raise InvalidArguments("The place is empty: send a town, a postal code or coordinates.")
    return _clearest(name, _namesakes(name, await _found(name, areas, search)))


async def _found(name: str, areas: Sequence[str], search: Search) -> Sequence[Place]:
    """Return the places of a name that lie in all the areas; never none."""
    places = await search(name, CANDIDATES_OF_AREAS if areas else CANDIDATES)
    within = [place for place in places if all(_lies_in(place, area) for area in areas)]
    if places and not within:
        # The service itself knows areas in many languages, but no abbreviations.
        within = list(await search(f"{name}, {areas[0]}", CANDIDATES))
    if within:
        return within
    if places:
        listed = "; ".join(_described(places[:MAX_LISTED]))
        raise ToolError(f"There is no {name} in {', '.join(areas)}. Places of that name: {listed}.")
    raise ToolError(
        f"No place named {name!r} was found. Check the spelling, leave out street and house "
        "number, or send a larger town nearby, a postal code, or coordinates such as 52.52, 13.41."
    )


def folded(name: str) -> str:
    """Return a name as it is compared: no case, accents or dots, single spaces."""
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
    short = ABBREVIATIONS.get(country, {}).get(folded(place.admin1))
    names = {folded(place.name), folded(place.country), folded(country), short}
    if wanted in names.union(COUNTRIES.get(country, ())) or _has_postcode(place, wanted):
        return True
    areas = (place.admin1, place.admin2, place.admin3, place.admin4)
    return any(_same_area(wanted, folded(name)) for name in areas if name)


def _same_area(wanted: str, name: str) -> bool:
    """Tell whether two names are one, or one of them only has more words behind it."""
    return f"{name} ".startswith(f"{wanted} ") or f"{wanted} ".startswith(f"{name} ")


def _has_postcode(place: Place, wanted: str) -> bool:
    has_digit = any(map(str.isdigit, wanted))  # cities have hundreds of them
    return has_digit and wanted in map(folded, place.postcodes)


def _namesakes(name: str, places: Sequence[Place]) -> Sequence[Place]:
    """Return the places that the name means, the weightiest first.

    These are the likeliest one, which may bear the name in another language, and all that are
    called exactly so or have this postal code. The state around a city of its name is left out.
    """
    wanted = folded(name)
    called_so = [
        place
        for place in places
        if place is places[0] or folded(place.name) == wanted or _has_postcode(place, wanted)
    ]
    around = {area for place in called_so for area in _areas(place)}
    innermost = [place for place in called_so if place.id not in around] or called_so
    return sorted(innermost, key=_weight, reverse=True)


def _areas(place: Place) -> Iterator[int]:
    """Return the ids of the areas around a place; an area may name itself."""
    areas = (
        place.admin4_id,
        place.admin3_id,
        place.admin2_id,
        place.admin1_id,
        place.country_id,
    )
    return (area for area in areas if area is not None and area != place.id)


def _weight(place: Place) -> float:
    return place.population * (AREA_WEIGHT if _is_area(place) else 1)


def _is_area(place: Place) -> bool:
    """Tell whether a place is a state, a county and the like, by GeoNames' codes."""
    return place.feature_code.startswith(("ADM", "PCL"))


def _clearest(name: str, namesakes: Sequence[Place]) -> Spot:
    place, *others = namesakes
    rivals = [other for other in others if not _near(place, other)]
    # Of the places with one postal code the largest is not likelier than another.
    by_name = not _has_postcode(place, folded(name))
    largest_rival = max(map(_weight, rivals), default=0)
    clear = by_name and 0 < _weight(place) >= CLEARLY_LARGER * largest_rival
    if rivals and not clear:
        listed = "; ".join(_described([place, *rivals][:MAX_LISTED]))
        raise AmbiguousPlace(
            f"{name}: which one? {listed}. "
            "Ask again with the region or country behind a comma, or with coordinates."
        )
    label, *other_labels = _described([place, *rivals[:MAX_OTHERS]])
    return Spot(label, place.latitude, place.longitude, tuple(other_labels))


def _near(one: Place, other: Place) -> bool:
    return (
        abs(one.latitude - other.latitude) < NEAR_DEGREES
        and abs(one.longitude - other.longitude) < NEAR_DEGREES
    )


def _described(places: Sequence[Place]) -> list[str]:
    """Return what tells places apart, with coordinates where names do not."""
    labels = [_label(place) for place in places]
    often = Counter(labels)
    return [
        label + _details(place, alone=often[label] == 1)
        for place, label in zip(places, labels, strict=True)
    ]


def _label(place: Place) -> str:
    parts = (place.name, place.admin1, place.country or place.country_code)
    return ", ".join(dict.fromkeys(part for part in parts if part))


def _details(place: Place, *, alone: bool) -> str:
    kind = "the region" if _is_area(place) else ""
    inhabitants = f"pop. {place.population:,}" if place.population > 0 else ""
    area = "" if alone else place.admin2
    spot = "" if alone else f"{place.latitude:.2f}, {place.longitude:.2f}"
    details = "; ".join(filter(None, (kind, inhabitants, area, spot)))
    return f" ({details})" if details else ""
