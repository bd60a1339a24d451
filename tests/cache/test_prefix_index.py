"""Keys cover all a block's content depends on; the index is one to one."""

from hypothesis import given, strategies as st

from twostroke.cache.prefix_index import KEY_BYTES, PrefixIndex, block_key, root_key

tokens = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)


def test_roots_differ_when_text_moves_from_one_part_to_the_next() -> None:
    assert root_key(["a", "bc"]) != root_key(["ab", "c"])
    assert root_key(["", "x"]) != root_key(["x", ""])
    assert root_key([]) != root_key([""])
    assert root_key(["täglich"]) == root_key(["täglich"])


@given(tokens, tokens)
def test_a_block_key_depends_on_every_token_and_on_the_parent(left: list[int], right: list[int]) -> None:
    root, other = root_key(["a"]), root_key(["b"])
    assert (block_key(root, left) == block_key(root, right)) == (left == right)
    assert block_key(root, left) != block_key(other, left)
    assert len(block_key(root, left)) == KEY_BYTES


def test_tokens_are_told_apart_where_their_bytes_could_run_together() -> None:
    root = root_key([])
    assert block_key(root, [1, 0]) != block_key(root, [1])
    assert block_key(root, [256]) != block_key(root, [0, 1])


def test_a_key_is_stable_across_processes() -> None:
    """A key written down once: a changed recipe would silently orphan every stored prefix."""
    key = block_key(root_key(["salt", "model", "f32", ""]), [1, 2, 3])
    assert key.hex() == "8baf342316a64d70106e1fdb2e0bec56e406006532fa02485b4212b640d05909"


def test_the_first_block_with_a_key_keeps_it() -> None:
    index, key = PrefixIndex(), root_key(["k"])
    index.publish(key, block=3)
    index.publish(key, block=5)
    assert index.find(key) == 3
    assert 3 in index
    assert 5 not in index
    assert len(index) == 1


def test_a_block_has_one_key() -> None:
    index, first, second = PrefixIndex(), root_key(["1"]), root_key(["2"])
    index.publish(first, block=3)
    index.publish(second, block=3)
    assert index.find(second) is None


def test_a_withdrawn_block_is_gone_and_its_key_free_again() -> None:
    index, key = PrefixIndex(), root_key(["k"])
    index.publish(key, block=3)
    index.withdraw(3)
    index.withdraw(3)
    assert index.find(key) is None
    index.publish(key, block=5)
    assert index.find(key) == 5
