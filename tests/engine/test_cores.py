"""Threads by default: physical cores, never more than a cgroup pays for."""

import os
from pathlib import Path

import pytest

from twostroke.engine.cores import usable_cores, usable_cpus


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 4, 5}, raising=False)


def topology(folder: Path, siblings: dict[int, str]) -> Path:
    for cpu, text in siblings.items():
        file = folder / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(f"{text}\n")
    return folder


def cgroup(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return folder


def test_siblings_of_a_core_count_once(tmp_path: Path) -> None:
    pairs = topology(tmp_path, {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5"})
    assert usable_cores(pairs, tmp_path) == 2


def test_a_sibling_this_process_may_not_use_takes_nothing_away(tmp_path: Path) -> None:
    pairs = topology(tmp_path, {0: "0,8", 1: "1,9", 4: "4,12", 5: "5,13"})
    assert usable_cores(pairs, tmp_path) == 4


def test_cpus_of_unknown_cores_count_each(tmp_path: Path) -> None:
    assert usable_cores(tmp_path, tmp_path) == 4


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 4), ("300000 100000", 3), ("150000 100000", 1), ("50000 100000", 1), ("?", 4)]
)
def test_a_quota_of_cgroup_2_is_not_passed(tmp_path: Path, text: str, cores: int) -> None:
    assert usable_cores(tmp_path, cgroup(tmp_path, {"cpu.max": text})) == cores


@pytest.mark.parametrize(("text", "cpus"), [("max 100000", 4), ("300000 100000", 3), ("50000 100000", 1)])
def test_cpus_count_siblings_but_not_beyond_a_quota(tmp_path: Path, text: str, cpus: int) -> None:
    assert usable_cpus(cgroup(tmp_path, {"cpu.max": text})) == cpus


@pytest.mark.parametrize(("microseconds", "cores"), [("-1", 4), ("200000", 2), ("900000", 4)])
def test_a_quota_of_cgroup_1_is_not_passed(tmp_path: Path, microseconds: str, cores: int) -> None:
    files = {"cpu/cpu.cfs_quota_us": microseconds, "cpu/cpu.cfs_period_us": "100000"}
    assert usable_cores(tmp_path, cgroup(tmp_path, files)) == cores


def test_this_machine_has_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
