"""Characters that are not displayed."""

from __future__ import annotations

import re
from typing import Final

# The inside of a character class: controls, lone surrogates, Unicode's default ignorable characters (soft hyphen, fillers,
# joiners, directions, variation selectors, tags), line and paragraph separators, annotation marks and the Braille blank.
INVISIBLE: Final = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800"
    r"\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Those of them that stand inside words and change nothing of what is read: soft hyphen, joiners, zero-width spaces, directions,
# variation selectors, tags.
_IGNORABLE: Final = (
    r"\u00ad\u034f\u061c\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_FIND = re.compile(f"[{INVISIBLE}]").search
_DROP = re.compile(f"[{_IGNORABLE}]+").sub


def without_ignorable(text: str) -> str:
    """The text without characters that nobody sees and that split no word: ``re\u00adfund`` is read as ``refund``."""
    return text if text.isascii() else _DROP("", text)


def first_invisible(text: str) -> str | None:
    """Return the first invisible character of a text, written like ``U+200B``, or None."""
    match = _FIND(text)
    return None if match is None else f"U+{ord(match[0]):04X}"
