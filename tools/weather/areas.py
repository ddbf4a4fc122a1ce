"""Short names of areas that people write behind a town: Portland, ME; Paris, TX; London, UK."""

from typing import Final

COUNTRIES: Final = {
    "US": ("usa", "united states of america", "america"),
    "GB": ("uk", "great britain", "britain"),
    "AE": ("uae", "emirates"),
}
"""By the country's ISO 3166-1 code, as `places.folded` writes them."""

ABBREVIATIONS: Final = {
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
"""Postal abbreviations of the largest areas, by country and the area's name."""
