"""The code of readers/README.md: `section(name)` gives the blocks of a heading, as pairs of a language and the text."""

import pathlib
import re

PAGE = pathlib.Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(name: str) -> list[tuple[str, str]]:
    text = PAGE.read_text()
    begin = text.index(f"\n## {name}\n")
    end = text.find("\n## ", begin + 1)
    return BLOCK.findall(text[begin : None if end < 0 else end])


def verdict_code(name: str) -> str:
    """The first block of a section, which leaves a `verdict` of the table TABLE."""
    return section(name)[0][1]
