"""Print the first Python example of a Markdown file."""

import re
import sys
from pathlib import Path

found = re.search(r"^```python\n(.*?)^```", Path(sys.argv[1]).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
if found is None:
    sys.exit(f"{sys.argv[1]} has no Python example")
print(found[1])
