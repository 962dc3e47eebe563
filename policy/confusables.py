"""What a person takes a name for, so that a name cannot pass for another one.

Letter case, accents, spaces, invisible characters and letters of other alphabets that look like ASCII ones
make no difference to a person. The table below has the common ones, not all of Unicode's.

Source: Unicode Technical Standard 39, "Confusable Detection", whose idea of a skeleton this follows.
"""

from __future__ import annotations

import unicodedata

# Letters and marks that look like ASCII ones and that Unicode's compatibility mapping leaves as they are.
_CONFUSABLE = str.maketrans(
    "авекмнорстухіјѕһԁԍԛԝгп" + "αβγεηικνορτυχω" + "ıɡɑ" + "‐‒–—−" + "·‧∙⋅。",
    "abekmhopctyxijshdgqwrn" + "abyenikvoptuxw" + "iga" + "-----" + ".....",
)


#: What `skeleton_of` leaves out of ASCII: space and control characters.
_ASCII_UNSEEN = dict.fromkeys((*range(33), 127))


def skeleton_of(name: str) -> str:
    """What a person sees: no case, no accents, no spaces or invisible characters, confusables resolved."""
    if name.isascii():
        return name.lower().translate(_ASCII_UNSEEN)
    text = unicodedata.normalize("NFKD", name).casefold().translate(_CONFUSABLE)
    return "".join(c for c in text if unicodedata.category(c)[0] not in "MCZ")


def equal_but_foreign(text: str, known: str) -> bool:
    """Equal, where a letter outside ASCII may stand for any letter, as long as most letters are equal."""
    if len(text) != len(known) or text.isascii():
        return text == known
    equal = sum(a == b for a, b in zip(text, known, strict=True))
    foreign = sum(not a.isascii() for a in text)
    return equal + foreign == len(known) and 2 * equal >= len(known)
