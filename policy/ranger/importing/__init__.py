"""Import of Apache Ranger's documents: strict documents, and a report of what became of each part."""

from policy.ranger.importing.documents import import_ranger
from policy.ranger.importing.report import Imported, Line, Outcome

__all__ = ["Imported", "Line", "Outcome", "import_ranger"]
