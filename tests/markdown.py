"""Code blocks of the pages that people read, and their commands run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def code_blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every fenced block of a page, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def run_command(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in a folder; `schemarouter` is the one beside this Python."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
