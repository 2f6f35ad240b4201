"""Makes docs/python.md the README of the package, without links to pages that no package index has."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface


class CustomMetadataHook(MetadataHookInterface):
    def update(self, metadata: dict) -> None:
        """Sets `readme`. An sdist has the page as README.md."""
        own = Path(self.root, "README.md")
        page = own if own.exists() else Path(self.root, "../../docs/python.md")
        text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", page.read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
