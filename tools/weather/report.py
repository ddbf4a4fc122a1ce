"""A forecast as text that a model can read."""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Final

from tools.weather.answers import Current, Day, Forecast
from tools.weather.open_meteo import Units
from tools.weather.places import Spot
from tools.weather.words import compass_point, condition

SOURCE: Final = "Source: Open-Meteo.com"
_ONE_DAY: Final = timedelta(days=1)


def report(spot: Spot, forecast: Forecast, units: Units, days: int) -> str:
    """Return the weather of a place: which place, the weather now, and a line for each day.

    Args:
        spot: the place that was taken.
        forecast: its weather; what it does not know is left out.
        units: those of its numbers.
        days: lines, at most.
    """
    lines = [f"Weather in {spot.name}"]
    if spot.others:
        lines.append(f"Other places of that name: {'; '.join(spot.others)}")
    today = None
    if forecast.current is not None:
        today = forecast.current.time.date()
        lines.append(_now(forecast.current, forecast.timezone, units))
    if forecast.daily is not None:
        lines.extend(_day(day, today, units) for day in list(forecast.daily.days())[:days])
    return "\n".join([*lines, SOURCE])


def _now(current: Current, timezone: str, units: Units) -> str:
    zone = f" ({timezone})" if timezone else ""
    values = "; ".join([*_sky(current, units), *_wind(current, units)]) or "no values"
    return f"Measured at {current.time:%H:%M} local time{zone}: {values}"


def _sky(current: Current, units: Units) -> Iterator[str]:
    if current.weather_code is not None:
        night = " at night" if current.is_day == 0 else ""
        yield condition(current.weather_code) + night
    if current.temperature_2m is not None:
        yield f"{current.temperature_2m:g} {units.temperature}"
    if current.apparent_temperature is not None:
        yield f"feels like {current.apparent_temperature:g} {units.temperature}"
    if current.relative_humidity_2m is not None:
        yield f"relative humidity {current.relative_humidity_2m:g} %"
    if current.precipitation is not None:
        minutes = (current.interval or 0) // 60
        within = f" in the last {minutes} minutes" if minutes > 0 else ""
        yield f"precipitation {current.precipitation:g} {units.length}{within}"


def _wind(current: Current, units: Units) -> Iterator[str]:
    if current.wind_speed_10m is not None:
        direction = current.wind_direction_10m
        origin = "" if direction is None else f" from the {compass_point(direction)}"
        yield f"wind {current.wind_speed_10m:g} {units.speed}{origin}"
    if current.wind_gusts_10m is not None:
        yield f"gusts {current.wind_gusts_10m:g} {units.speed}"


def _day(day: Day, today: date | None, units: Units) -> str:
    name = f"{day.date:%A}, {day.date.day} {day.date:%B}" + (" (today)" * (day.date == today))
    return f"{name}: {'; '.join(_outlook(day, units)) or 'no forecast'}"


def _outlook(day: Day, units: Units) -> Iterator[str]:
    if day.weather_code is not None:
        yield condition(day.weather_code)
    yield from _temperatures(day, units)
    yield from _precipitation(day, units)
    yield from _sun(day)


def _temperatures(day: Day, units: Units) -> Iterator[str]:
    low, high = day.temperature_min, day.temperature_max
    if low is not None and high is not None:
        yield f"{low:g} to {high:g} {units.temperature}"
    elif low is not None:
        yield f"at least {low:g} {units.temperature}"
    elif high is not None:
        yield f"at most {high:g} {units.temperature}"


def _precipitation(day: Day, units: Units) -> Iterator[str]:
    amount, chance = day.precipitation, day.precipitation_probability
    if amount is not None:
        probability = "" if chance is None else f" ({chance:g} % chance)"
        yield f"precipitation {amount:g} {units.length}{probability}"
    elif chance is not None:
        yield f"{chance:g} % chance of precipitation"


def _sun(day: Day) -> Iterator[str]:
    """Yield when the sun is up, unless it is all day or not at all: then the times are fillers."""
    if day.sunrise is None or day.sunset is None or day.sunrise.date() != day.date:
        return
    if timedelta() < day.sunset - day.sunrise < _ONE_DAY:
        yield f"sunrise {day.sunrise:%H:%M}, sunset {day.sunset:%H:%M}"
