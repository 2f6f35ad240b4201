"""What the API answers."""

from __future__ import annotations

import sys
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, ClassVar


class Record(dict[str, Any]):
    """What the API answered: a dictionary whose fields are attributes too. A field that was left out is None."""

    #: The names of the classes of fields that are records, or lists of them.
    _nested: ClassVar[dict[str, str]] = {}

    def __init__(self, *given: Any, **fields: Any) -> None:
        super().__init__(*given, **fields)
        module = sys.modules[type(self).__module__]
        for name, kind in self._nested.items():
            value, record = self.get(name), getattr(module, kind)
            if isinstance(value, dict):
                self[name] = record(value)
            elif isinstance(value, list):
                self[name] = [record(each) for each in value]

    # A type checker sees only what a class names.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in self:
                return self[name]
            if any(name in get_annotations(kind) for kind in type(self).__mro__):
                return None
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
