"""The values of ``format`` that are enforced, as regular expressions.

Each matches only texts of the format, in some cases not all of them. llguidance's own formats are
used if they do so. Sources: RFC 3339, 3986, 6901, 9562 and JSON Schema 2020-12,
Validation, section 7.
"""

from __future__ import annotations

from typing import Final

_LEAP = "(?:(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26]))|(?:(?:[02468][048]|[13579][26])00))"
_DATE = (
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP}-02-29)"
)
# Without leap seconds, which only some minutes have.
_HOUR = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR}:[0-5][0-9](?:\.[0-9]+)?(?:[zZ]|[+-]{_HOUR})"
# At most 61 characters, without the hyphens of encoded labels, whose rules are long.
_LABEL = "[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,30}"
_SHORT = "[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,5}"
_HOST = rf"(?:(?:{_LABEL}\.){{0,3}}|(?:{_SHORT}\.){{4,15}}){_LABEL}"  # at most 253 characters
_SEGMENT = "[a-zA-Z0-9._~-](?:[a-zA-Z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})*"
_PATH = "(?:[a-zA-Z0-9._!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*"
_REFERENCE = (
    rf"(?:[a-zA-Z][a-zA-Z0-9+.-]*:/?{_SEGMENT}|/{_SEGMENT}|{_SEGMENT})?(?:/{_SEGMENT})*/?"
    rf"(?:\?{_PATH})?(?:#{_PATH})?"
)
_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_HEX = "[0-9a-fA-F]"

# The formats, each as a pattern of the whole text.
PATTERNS: Final = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[tT]{_TIME}",
    "hostname": _HOST,
    "host-name": _HOST,  # of draft 3
    "idn-hostname": _HOST,
    "uri-reference": _REFERENCE,
    "uri-template": _REFERENCE,
    "iri-reference": _REFERENCE,
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    # pydantic's names for UUIDs of one version.
    **{
        f"uuid{version}": f"{_HEX}{{8}}-{_HEX}{{4}}-{version}{_HEX}{{3}}-[89abAB]{_HEX}{{3}}"
        f"-{_HEX}{{12}}"
        for version in range(1, 9)
    },
}
# llguidance's own formats, by its names.
NATIVE: Final = {
    "duration": "duration",
    "email": "email",
    "ipv4": "ipv4",
    "ip-address": "ipv4",  # of draft 3
    "ipv6": "ipv6",
    "uuid": "uuid",
    "uri": "uri",
    "url": "uri",
    "idn-email": "email",
    "iri": "uri",
}
# These describe a text's purpose and exclude none.
NOTES: Final = frozenset({"password", "binary", "byte", "markdown", "html", "textarea"})
# Formats of some version of JSON Schema that are not enforced.
UNENFORCED: Final = frozenset({"regex", "color", "style", "phone", "utc-millisec"})
NAMES: Final = tuple(sorted({*PATTERNS, *NATIVE}))
