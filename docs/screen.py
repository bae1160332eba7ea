"""Draw what a command prints:  python docs/screen.py docs/fit.svg fit pydocs --out runs/fit."""

import os
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

_WIDTH = 110


def main(picture: str, *words: str) -> None:
    """Run ``selfsent`` with these words, and write its standard output as SVG that needs no other server."""
    asked = os.environ | {"FORCE_COLOR": "1", "COLUMNS": f"{_WIDTH}"}
    command = [str(Path(sys.executable).with_name("selfsent")), *words]
    said = subprocess.run(command, env=asked, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    shown = shlex.join(word for word in words if word != "--resume")
    console = Console(record=True, width=_WIDTH, file=StringIO())
    console.print(Text.from_ansi(f"\x1b[1m$ selfsent {shown}\x1b[0m\n{said}"))
    drawn = console.export_svg(title="selfsent", unique_id="screen")
    Path(picture).write_text(re.sub(r"\s*@font-face \{.*?\}", "", drawn, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
