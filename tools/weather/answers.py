"""What Open-Meteo answers, parsed once.

The shapes are those of https://open-meteo.com/en/docs/geocoding-api and
https://open-meteo.com/en/docs: empty fields are left out, values that a model of the atmosphere
does not have are null, and no result at all is an answer without `results`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, Field, FiniteFloat, NaiveDatetime

MAX_LINE_CHARACTERS: Final = 60


def one_line(text: str, limit: int = MAX_LINE_CHARACTERS) -> str:
    """Return a stranger's text as one short line without control characters."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(printable.split())[:limit]


Value = TypeVar("Value")

_Line = Annotated[str, AfterValidator(one_line)]
_Floats = tuple[FiniteFloat | None, ...]
_Code = Annotated[int, Field(ge=0, le=999)]
_Moments = tuple[NaiveDatetime | None, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A place as GeoNames has it; `admin1` is the largest area within the country."""

    id: int
    name: _Line
    latitude: Annotated[float, Field(ge=-90, le=90)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    feature_code: str = ""
    country: _Line = ""
    country_code: _Line = ""
    country_id: int | None = None
    admin1: _Line = ""
    admin1_id: int | None = None
    admin2: _Line = ""
    admin2_id: int | None = None
    admin3: _Line = ""
    admin3_id: int | None = None
    admin4: _Line = ""
    admin4_id: int | None = None
    population: Annotated[int, Field(le=10**10)] = 0
    postcodes: tuple[_Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """An answer of the geocoder; `error` in it makes it invalid."""

    results: tuple[Place, ...] = ()
    error: Literal[False] = False


@dataclass(frozen=True, slots=True)
class Current:
    """The weather now; `time` is local, `precipitation` that of the last `interval` seconds."""

    time: NaiveDatetime
    interval: Annotated[int, Field(le=86_400)] | None = None
    temperature_2m: FiniteFloat | None = None
    relative_humidity_2m: FiniteFloat | None = None
    apparent_temperature: FiniteFloat | None = None
    is_day: int | None = None
    precipitation: FiniteFloat | None = None
    weather_code: _Code | None = None
    wind_speed_10m: FiniteFloat | None = None
    wind_direction_10m: FiniteFloat | None = None
    wind_gusts_10m: FiniteFloat | None = None


@dataclass(frozen=True, slots=True)
class Day:
    """The forecast of one day, in local time."""

    date: date
    weather_code: int | None
    temperature_min: float | None
    temperature_max: float | None
    precipitation: float | None
    precipitation_probability: float | None
    sunrise: datetime | None
    sunset: datetime | None


@dataclass(frozen=True, slots=True)
class Daily:
    """The forecast as it comes, a column for each variable; `time` says how many days it has."""

    time: tuple[date, ...] = ()
    weather_code: tuple[_Code | None, ...] = ()
    temperature_2m_max: _Floats = ()
    temperature_2m_min: _Floats = ()
    precipitation_sum: _Floats = ()
    precipitation_probability_max: _Floats = ()
    sunrise: _Moments = ()
    sunset: _Moments = ()

    def days(self) -> Iterator[Day]:
        """Return the forecast day by day; a column that is too short has no more values."""
        for index, day in enumerate(self.time):
            yield Day(
                date=day,
                weather_code=_at(self.weather_code, index),
                temperature_min=_at(self.temperature_2m_min, index),
                temperature_max=_at(self.temperature_2m_max, index),
                precipitation=_at(self.precipitation_sum, index),
                precipitation_probability=_at(self.precipitation_probability_max, index),
                sunrise=_at(self.sunrise, index),
                sunset=_at(self.sunset, index),
            )


@dataclass(frozen=True, slots=True)
class Forecast:
    """An answer of the forecast: at least one of `current` and `daily` is there."""

    timezone: _Line = ""
    current: Current | None = None
    daily: Daily | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was refused, in the service's words."""

    reason: str


def _at(column: Sequence[Value], index: int) -> Value | None:
    return column[index] if index < len(column) else None
