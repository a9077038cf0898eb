"""The plan of a parallel build against a plain sequential model."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from logdex.spark.index.build import LogFileCount, plan_build

Seed: TypeAlias = tuple[int, int]
NO_SEED = (0, 0)

# A log is a list of files, a file a list of messages, a message its number of entries.
logs = st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=5)


def offsets(log: list[list[int]]) -> list[list[int]]:
    return [[1000 * number + 10 * place + 10 for place in range(len(file))] for number, file in enumerate(log)]


def sequential(log: list[list[int]], file_entries: int) -> list[tuple[Seed, list[int]]]:
    """Make index files as a broker does: each its seed and the offsets of its entries."""
    files: list[tuple[Seed, list[int]]] = []
    last = NO_SEED
    for places, file in zip(offsets(log), log, strict=True):
        for place, keys in zip(places, file, strict=True):
            if not files or len(files[-1][1]) == file_entries:
                files.append((last, []))
            for _ in range(keys):
                if len(files[-1][1]) == file_entries:
                    files.append((last, []))
                files[-1][1].append(place)
                last = (place, 2 * place)
    return files


def counted(log: list[list[int]]) -> list[LogFileCount]:
    return [
        LogFileCount(str(number), len(file), sum(file), message_after=bool(file) and not file[-1], continues=True)
        for number, file in enumerate(log)
    ]


@given(logs, st.integers(1, 5), st.integers(1, 7))
def test_tasks_make_the_files_of_a_sequential_build(log: list[list[int]], file_entries: int, max_tasks: int) -> None:
    plan = plan_build(counted(log), file_entries=file_entries, max_tasks=max_tasks)
    left = [
        place
        for places, file in zip(offsets(log), log, strict=True)
        for place, keys in zip(places, file, strict=True)
        for _ in range(keys)
    ]
    made: list[tuple[Seed, list[int]]] = []
    for task in plan.tasks:
        seed = (left[task.first - 1], 2 * left[task.first - 1]) if task.first else NO_SEED
        own = left[task.first : task.last]
        for start in range(0, len(own), file_entries):
            made.append((seed, own[start : start + file_entries]))
            seed = (made[-1][1][-1], 2 * made[-1][1][-1])
        if task.empty_file:
            made.append((seed, []))
    assert made == sequential(log, file_entries)
    assert plan.rows == [(str(number), sum(file)) for number, file in enumerate(log)]
    assert plan.entries == sum(map(sum, log))
    assert plan.messages == sum(map(len, log))
    assert len(plan.tasks) <= max_tasks


def test_files_behind_the_end_of_the_log_are_left_out() -> None:
    first, second, third = counted([[1, 1], [1], [2]])
    ended = second._replace(continues=False)
    plan = plan_build([first, ended, third], file_entries=10, max_tasks=4)
    assert (plan.messages, plan.entries) == (3, 3)
