"""Files are written beside their place and moved in, readable by whom the umask allows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conditions.storage.append_log import Log
from schemarouter.disk_cache import DiskCache
from schemarouter.files import write_new, write_whole


def test_a_file_is_moved_in_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two" and [item.name for item in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_who_may_read_what_is_written(umask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "whole", b"x")
        write_new(tmp_path / "new", b"x")
        with Log(tmp_path / "log") as log:
            log.append(b"x")
        DiskCache("kind", "identity", 4, folder=tmp_path).put("text", b"1234")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4 and {path.stat().st_mode & 0o777 for path in files} == {mode}
