"""Access reports: who can do what, and what a change of policies would grant or take away."""

from policy.access.difference import Change, Thing, differences
from policy.access.matrix import Abilities, AbilityGroup, Asker, abilities, alike
from policy.access.people import EVERYBODY_ELSE, People
from policy.access.who_can import Access, Question, who_can

__all__ = [
    "EVERYBODY_ELSE",
    "Abilities",
    "AbilityGroup",
    "Access",
    "Asker",
    "Change",
    "People",
    "Question",
    "Thing",
    "abilities",
    "alike",
    "differences",
    "who_can",
]
