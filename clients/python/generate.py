"""Writes the synchronous half, `_sync`, from the asynchronous one; `runtime.py` is each half's own. With --check it
only says whether they fit."""

import re
import sys
from pathlib import Path

package = Path(__file__).parent / "src" / "sandgate"
rules = [
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(.+?)\]", r"\1"),
    (r"\bAwaitable, ", ""),
    (r"\bAsync(Sandbox|Sandboxes|Sandgate|Iterator|Http|Client)\b", r"\1"),
    (r"\bAsyncGenerator\[(.+?), None\]", r"Generator[\1, None, None]"),
    (r"\bAsyncGenerator\b", "Generator"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\ba(close|read|iter_bytes|iter_raw|next)\(", r"\1("),
]
drifted = []
for source in sorted((package / "_async").glob("*.py")):
    if source.name == "runtime.py":
        continue
    text = source.read_text()
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    target = package / "_sync" / source.name
    if "--check" in sys.argv:
        if not target.exists() or target.read_text() != text:
            drifted.append(source.name)
    else:
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
if drifted:
    sys.exit(f"Run clients/python/generate.py: {', '.join(drifted)}")
