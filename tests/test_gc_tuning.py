"""Collections are fewer within a block, and as before after it, however it ended."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from schemarouter.gc_tuning import reduced_gc


def test_the_collector_is_as_before_afterwards() -> None:
    before = gc.get_threshold()

    def failing() -> None:
        with reduced_gc():
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == (True, before, 0)


LAST_LOOK = """
import gc
from schemarouter.gc_tuning import skip_final_gc

class Finalised:
    def __del__(self):
        print("found")

def leave_a_cycle():
    finalised = Finalised()
    finalised.itself = finalised

gc.disable()
leave_a_cycle()
if {asked}:
    skip_final_gc()
    skip_final_gc()
"""


@pytest.mark.parametrize(("asked", "output"), [(True, ""), (False, "found\n")])
def test_a_process_ends_without_a_last_look_where_it_was_asked_to(asked: bool, output: str) -> None:
    code = LAST_LOOK.format(asked=asked)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == output
