"""Where a run comes from: commit, changes and the fingerprint of the code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conditions.running import provenance as code
from conditions.storage.run_directory import Provenance
from preregistration.lock import FILES
from schemarouter.cli.render import code_text, points
from schemarouter.errors import InvalidRunError
from tests.toys import PROVENANCE, changed

read_anew = code.code_fingerprint.__wrapped__


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small checkout with a file in each package."""
    for package in code.CODE:
        (tmp_path / package / "inner").mkdir(parents=True)
        (tmp_path / package / "inner" / "code.py").write_text(f"NAME = {package!r}\n")
    (tmp_path / "preregistration" / "protocol-v1.json").write_text("{}")
    return tmp_path


Change = Callable[[Path], object]
CHANGES: dict[str, Change] = {
    "code": lambda root: (root / "schemarouter" / "inner" / "code.py").write_text("NAME = 'other'\n"),
    "white space": lambda root: (root / "gates" / "inner" / "code.py").write_text("NAME = 'gates'\n\n"),
    "data": lambda root: (root / "preregistration" / "protocol-v1.json").write_text("[]"),
    "new code": lambda root: (root / "surface" / "more.py").write_text(""),
    "new data": lambda root: (root / "schemarouter" / "inner" / "words.json").write_text("{}"),
    "gone": lambda root: (root / "conditions" / "inner" / "code.py").unlink(),
    "renamed": lambda root: (root / "conditions" / "inner" / "code.py").rename(root / "conditions" / "code.py"),
}
HARMLESS: dict[str, tuple[str, ...]] = {
    "bytecode": ("gates", "__pycache__", "code.cpython-311.pyc"),
    "notes": ("surface", "README.md"),
    "hidden": ("schemarouter", ".code.py.swp"),
    "hidden folder": ("schemarouter", ".cache", "x.json"),
    "development lock": ("preregistration", "development.lock.json"),
    "frozen lock": ("preregistration", "lock.json"),
    "results": ("preregistration", "results", "verdict.json"),
    "tests": ("tests", "test_x.py"),
    "top": ("setup.py",),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_code_or_data_changes_the_fingerprint(name: str, root: Path) -> None:
    before = read_anew(root)
    CHANGES[name](root)
    assert read_anew(root) != before


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_neither_code_nor_data_changes_nothing(name: str, root: Path) -> None:
    before = read_anew(root)
    path = root.joinpath(*HARMLESS[name])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert read_anew(root) == before


def test_where_the_code_lies_changes_nothing(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    moved = tmp_path_factory.mktemp("moved") / "deep"
    before = read_anew(root)
    root.rename(moved)
    assert read_anew(moved) == before
    moved.rename(root)


def test_a_file_that_cannot_be_read_is_one_message(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(InvalidRunError, match=r"code\.py: cannot be read \(Permission denied\)"):
        read_anew(root)


def test_the_code_of_this_program_is_all_of_it() -> None:
    named = {*code._code_files(code.ROOT)}
    assert {"conditions/storage/run_lock.py", "gates/identities.py", "preregistration/lock.py"} <= named
    assert any(name.startswith("surface/catalog/") for name in named)
    assert named.isdisjoint(f"preregistration/{name}" for name in FILES.values())
    assert code.provenance().code == code.code_fingerprint(code.ROOT)


def test_a_provenance_has_the_parts_that_a_run_directory_is_read_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["schemarouter", "run", "r\udcff", "한"])
    assert code.provenance().argv == ("run", "r\\udcff", "한")
    assert Provenance.model_validate(code.provenance().as_json()) == code.provenance()
    assert code.provenance(argv=()).argv == ()


def test_changes_are_unknown_where_git_cannot_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"rev-parse": "c0ffee"}
    monkeypatch.setattr(code, "_git", lambda *arguments: answers.get(arguments[0]))
    assert code.provenance().dirty is None


@pytest.mark.parametrize(
    ("provenance", "text"),
    [
        (
            {"commit": "a" * 40, "dirty": False, "code": "b" * 64},
            "commit aaaaaaaaaaaa, no uncommitted changes, SHA-256 bbbbbbbbbbbb.",
        ),
        (
            {"commit": "a" * 40, "dirty": True, "code": "c" * 64},
            "commit aaaaaaaaaaaa, uncommitted changes, SHA-256 cccccccccccc.",
        ),
        ({"commit": None, "dirty": None, "code": ""}, "commit unknown, changes unknown, SHA-256 unknown."),
    ],
)  # fmt: skip
def test_the_code_of_a_run_is_given_in_a_line(provenance: dict[str, object], text: str) -> None:
    assert code_text(changed(PROVENANCE, **provenance)) == f"Code of the run: {text}"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "undefined"), (-0.0271, "-2.7 percentage points"), (0.5, "+50.0 percentage points")]
)
def test_a_difference_of_rates_is_given_in_points(value: float | None, text: str) -> None:
    assert points(value) == text
