"""Numbers of the weather in words."""

from typing import Final

CONDITIONS: Final = {
    0: "clear sky",
    1: "mainly clear",
    2: "partly cloudy",
    3: "overcast",
    45: "fog",
    48: "depositing rime fog",
    51: "light drizzle",
    53: "moderate drizzle",
    55: "dense drizzle",
    56: "light freezing drizzle",
    57: "dense freezing drizzle",
    61: "slight rain",
    63: "moderate rain",
    65: "heavy rain",
    66: "light freezing rain",
    67: "heavy freezing rain",
    71: "slight snowfall",
    73: "moderate snowfall",
    75: "heavy snowfall",
    77: "snow grains",
    80: "slight rain showers",
    81: "moderate rain showers",
    82: "violent rain showers",
    85: "slight snow showers",
    86: "heavy snow showers",
    95: "thunderstorm",
    96: "thunderstorm with slight hail",
    99: "thunderstorm with heavy hail",
}
"""The WMO codes (table 4677) that Open-Meteo uses: https://open-meteo.com/en/docs"""

_COMPASS: Final = (
    "north",
    "north-northeast",
    "northeast",
    "east-northeast",
    "east",
    "east-southeast",
    "southeast",
    "south-southeast",
    "south",
    "south-southwest",
    "southwest",
    "west-southwest",
    "west",
    "west-northwest",
    "northwest",
    "north-northwest",
)


def condition(code: int) -> str:
    """Return a WMO weather code in words."""
    return CONDITIONS.get(code, f"unknown weather code {code}")


def compass_point(degrees: float) -> str:
    """Return the nearest of the 16 compass points; 0 degrees is north, 90 is east."""
    return _COMPASS[round(degrees / (360 / len(_COMPASS))) % len(_COMPASS)]
