"""Merging the shards of one run that were made in several directories."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from conditions.running.execute import COMPARED, header_differences, holds_a_run
from conditions.running.plan import Plan, Shard, Unit, plan_of
from conditions.storage.run_directory import RUN_FILE, RunHeader, read_header
from conditions.storage.run_lock import hold
from conditions.storage.shards import ShardLine, read_shard, shard_name, shards_in, timing_name
from schemarouter.errors import InvalidRunError
from schemarouter.files import write_new, write_whole

try:
    import resource
except ImportError:  # Such a system has no limit on open files to ask for.
    resource = None  # type: ignore[assignment]

_CHUNK = 1 << 20
# Files open besides the locks: streams, sources, the file that is being written.
_OTHER_FILES = 64


def merge(folders: Sequence[Path], out: Path) -> list[Shard]:
    """Copy the shards of one run from several run directories into `out`, which may hold some already; returns them all.

    Raises InvalidRunError, before anything is written, for different runs, for shards that are missing, altered, in two
    versions or of two divisions, and for episodes in the wrong shard.
    """
    begun = holds_a_run(out)
    sources = [*folders, out] if begun else list(folders)
    run = _same_run(sources)
    plan = plan_of(run.plan, f"{sources[0] / RUN_FILE}")
    _allow_open_files({shard for folder in sources for shard in shards_in(folder)})
    with ExitStack() as held:
        if begun:
            # No shard that is checked now may change before it is replaced.
            for shard in sorted({shard for folder in sources for shard in shards_in(folder)}, key=lambda s: s.index):
                held.enter_context(hold(out, shard))
        chosen = _choose_files(sources)
        for shard, path in chosen.items():
            check_shard(path, shard, run, plan)
        # Written first, so that an interrupted merge is a run with some of its shards, and the same command resumes it.
        if not begun and not write_new(out / RUN_FILE, run.to_bytes()):
            raise InvalidRunError(
                f"{out}: a run was begun in it meanwhile; run the same command again to merge into it."
            )
        for shard, path in chosen.items():
            if path.parent != out:
                if not begun:
                    held.enter_context(hold(out, shard))
                write_whole(out / path.name, _pieces(path))
                timing = path.with_name(timing_name(shard))
                if timing.exists():
                    write_whole(out / timing.name, _pieces(timing))
    return list(chosen)


def _allow_open_files(shards: Collection[Shard]) -> None:
    """Raise this process's limit on open files for the locks of all shards. Raises InvalidRunError where that is refused."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(shards) + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise InvalidRunError(
            f"{len(shards):,} shards are locked at once, but this process may open {hard:,} files only; raise that limit "
            "(ulimit -Hn), or divide a run into fewer shards."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _same_run(folders: Sequence[Path]) -> RunHeader:
    """The header that all directories share; command lines may differ. Raises InvalidRunError with every difference."""
    if not folders:
        raise InvalidRunError("nothing to merge; name at least one run directory.")
    first = read_header(folders[0])
    for folder in folders[1:]:
        other = read_header(folder)
        lines = header_differences(first, other, COMPARED, "here")
        lines += [
            f"{part}: {getattr(first, part)!r} there, {getattr(other, part)!r} here"
            for part in ("surface", "stamp", "resumed")
            if getattr(first, part) != getattr(other, part)
        ]
        if lines:
            listed = "\n  ".join(lines)
            raise InvalidRunError(f"{folder} is of another run than {folders[0]}. What differs:\n  {listed}")
    return first


def _choose_files(folders: Sequence[Path]) -> dict[Shard, Path]:
    """The file to keep for every shard of the division. Raises InvalidRunError where one is missing or in two versions."""
    found: dict[Shard, Path] = {}
    for folder in folders:
        for shard in shards_in(folder):
            path = folder / shard_name(shard)
            found[shard] = path if shard not in found else _longer(found[shard], path)
    counts = sorted({shard.count for shard in found})
    if len(counts) != 1:
        listed = " and ".join(map(str, counts)) or "no"
        raise InvalidRunError(f"the directories hold shards of {listed} divisions; merge those of one division.")
    whole = [Shard(index, counts[0]) for index in range(1, counts[0] + 1)]
    missing = [f"{shard.index}/{shard.count}" for shard in whole if shard not in found]
    if missing:
        raise InvalidRunError(
            f"shards missing: {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''} ({len(missing)} of {counts[0]})."
        )
    return {shard: found[shard] for shard in whole}


def check_shard(path: Path, shard: Shard, run: RunHeader, plan: Plan) -> None:
    """Raise InvalidRunError where a shard's header is not its run's, its chain is broken or an episode is of another shard."""
    finished: set[str] = set()
    for line in read_shard(path):
        if not isinstance(line, ShardLine):
            lines = header_differences(run, line, ("identities", "plan", "limits"), "here")
            if lines:
                raise InvalidRunError(f"{path}, line 1: the header is of another run: {'; '.join(lines)}")
            continue
        record, name = line.record, line.record.episode_id
        index = plan.index(Unit(record.task, record.catalog, record.condition, record.repeat))
        if index is None or index % shard.count != shard.index - 1:
            raise InvalidRunError(f"{path.parent / line.location}: episode {name} does not belong to this shard.")
        if name in finished:
            raise InvalidRunError(f"{path.parent / line.location}: episode {name} was completed before.")
        if not record.infrastructure:
            finished.add(name)


def _longer(one: Path, other: Path) -> Path:
    """Of two files of a shard the one that continues the other; `one` where they are the same.

    Raises InvalidRunError where neither continues the other.
    """
    try:
        with one.open("rb") as first, other.open("rb") as second:
            while (left := first.read(_CHUNK)) and (right := second.read(_CHUNK)):
                common = min(len(left), len(right))
                if left[:common] != right[:common]:
                    raise InvalidRunError(
                        f"{other} and {one} are two versions of one shard; leave out the one that is not wanted."
                    )
        return other if other.stat().st_size > one.stat().st_size else one
    except OSError as error:
        raise InvalidRunError(f"{error.filename or other}: cannot be read ({error.strerror}).") from None


def _pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file in pieces. Raises InvalidRunError when it cannot be read."""
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                yield piece
    except OSError as error:
        raise InvalidRunError(f"{path}: cannot be read ({error.strerror}).") from None
