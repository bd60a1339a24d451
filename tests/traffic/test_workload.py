"""Lengths and times of a load before anything is sent."""

import pytest

from tests.traffic.traffic_builders import make_item
from twostroke.errors import ConfigError
from twostroke.traffic.workload import Item, Piece, Workload, random_workload


def test_scaling_rounds_each_piece_and_leaves_at_least_a_token() -> None:
    item = Item(pieces=(Piece("a", 512), Piece("b", 3)), output_tokens=5, due_s=8.0, pause_s=2.0)
    scaled = Workload((item,), "x").scaled(lengths=1 / 16, speed=4)
    assert scaled.items[0].pieces == (Piece("a", 32), Piece("b", 1))
    assert (scaled.items[0].output_tokens, scaled.items[0].due_s, scaled.items[0].pause_s) == (1, 2.0, 0.5)
    assert (scaled.length_scale, scaled.speed) == (1 / 16, 4)


def test_times_are_there_when_each_has_one_or_follows_another() -> None:
    assert not Workload((make_item(),), "x").has_times
    timed = Workload((make_item(due_s=0.0), make_item(follows=0)), "x")
    assert timed.has_times
    assert not timed.in_turn().has_times
    moved = timed.due_at([1.0, 3.0])
    assert [(item.due_s, item.follows) for item in moved.items] == [(1.0, None), (3.0, None)]


def test_what_is_longer_than_the_context_is_refused_with_the_arithmetic() -> None:
    items = (make_item(10, 5), make_item(90, 20))
    Workload(items, "x").check_fits(110)
    with pytest.raises(ConfigError, match=r"90 \+ 20 = 110 tokens, the server's context is 109: fewer --input-tokens"):
        Workload(items, "x").check_fits(109)
    traced = Workload(items, "x", is_traced=True)
    with pytest.raises(ConfigError, match=r"--length-scale of at most 0\.499 fits"):
        traced.check_fits(55)
    traced.scaled(lengths=0.499, speed=1).check_fits(55)


def test_random_lengths_stay_inside_their_bounds_and_follow_the_seed() -> None:
    def lengths(seed: int) -> list[tuple[int, int]]:
        made = random_workload(count=50, prompt_tokens=(3, 9), output_tokens=(2, 2), seed=seed)
        return [(item.prompt_tokens, item.output_tokens) for item in made.items]

    assert lengths(1) == lengths(1) != lengths(2)
    assert {prompt for prompt, _ in lengths(1)} == set(range(3, 10))
    assert {output for _, output in lengths(1)} == {2}


def test_random_prompts_share_nothing() -> None:
    made = random_workload(count=9, prompt_tokens=(3, 3), output_tokens=(1, 1), seed=0)
    assert len({piece.name for item in made.items for piece in item.pieces}) == 9


def test_the_first_are_the_first() -> None:
    made = random_workload(count=9, prompt_tokens=(3, 9), output_tokens=(1, 1), seed=0)
    assert made.first(4).items == made.items[:4]
