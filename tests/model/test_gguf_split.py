"""A model in several GGUF parts: the good set, and one message for each way to get it wrong."""

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cases.make_malformed import T_I32, T_STR, T_U16, T_U32, KeyValue, Tensor, build_gguf, key_values, tensors
from twostroke.errors import ModelFileError
from twostroke.model.open import open_model

COUNT = 3


def split_keys(number: int, *, count: int = COUNT, num_tensors: int | None = None) -> list[KeyValue]:
    total = len(tensors()) if num_tensors is None else num_tensors
    return [("split.no", T_U16, number - 1), ("split.count", T_U16, count), ("split.tensors.count", T_I32, total)]


def part_bytes(number: int, weights: list[Tensor], *, num_tensors: int | None = None) -> bytes:
    """Later parts hold the split keys alone, as real writers do."""
    keys = [*(key_values() if number == 1 else []), *split_keys(number, num_tensors=num_tensors)]
    return build_gguf(keys, weights)[0]


def part_name(number: int, *, count: int = COUNT) -> str:
    return f"tiny-{number:05d}-of-{count:05d}.gguf"


def write_parts(folder: Path) -> list[Path]:
    weights = tensors()
    shares = [weights[:5], weights[5:9], weights[9:]]
    paths = [folder / part_name(number) for number in (1, 2, 3)]
    for number, (path, share) in enumerate(zip(paths, shares, strict=True), start=1):
        path.write_bytes(part_bytes(number, share))
    return paths


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_model(path)
    return str(caught.value)


def test_good_parts_equal_the_whole_file(tmp_path: Path) -> None:
    whole = tmp_path / "whole.gguf"
    whole.write_bytes(build_gguf()[0])
    one, three = open_model(whole), open_model(write_parts(tmp_path)[0])
    assert list(three.tensors) == list(one.tensors)
    for name in one.tensors:
        assert three.tensors[name].data.tobytes() == one.tensors[name].data.tobytes()
        assert three.tensors[name].shape == one.tensors[name].shape


def test_every_part_counts_in_the_fingerprint(tmp_path: Path) -> None:
    first, _, last = write_parts(tmp_path)
    before = open_model(first).fingerprint
    weights = tensors()[9:]
    weights[-1] = (*weights[-1][:3], b"\1" * len(weights[-1][3]))
    last.write_bytes(part_bytes(3, weights))
    assert open_model(first).fingerprint != before


def test_five_mistakes_have_five_messages_that_each_name_a_file(tmp_path: Path) -> None:
    messages = []
    first, second, third = write_parts(tmp_path)

    messages.append(refusal(second))
    assert messages[-1].startswith(f"{second}: it is part 2 of 3 of a split model; open part 1, {first.name}")

    joined = tmp_path / "joined.gguf"
    joined.write_bytes(first.read_bytes() + second.read_bytes() + third.read_bytes())
    messages.append(refusal(joined))
    assert messages[-1].startswith(f"{joined}: 3 parts of a split model were joined into one file")

    renamed = tmp_path / "model.gguf"
    renamed.write_bytes(first.read_bytes())
    messages.append(refusal(renamed))
    assert messages[-1].startswith(f"{renamed}: it is part 1 of 3, but its name does not end in -00001-of-00003.gguf")

    good_third = third.read_bytes()
    third.write_bytes(part_bytes(3, tensors()[:2], num_tensors=90))
    messages.append(refusal(first))
    assert messages[-1].startswith(f"{third}: it belongs to another model than {first.name}")
    assert "'split.tensors.count' is 90 here, 12 there" in messages[-1]

    third.write_bytes(good_third)
    second.unlink()
    messages.append(refusal(first))
    assert messages[-1].startswith(f"{second}: part 2 of 3 is missing; put it next to {first.name}")

    assert len(set(messages)) == 5


def test_part_with_the_tensors_of_another_is_refused(tmp_path: Path) -> None:
    first, _, third = write_parts(tmp_path)
    third.write_bytes(part_bytes(3, tensors()[:2]))
    assert f"{third}: it belongs to another model: tensor 'token_embd.weight' is in an earlier part" in refusal(first)


def test_part_with_too_few_tensors_is_refused(tmp_path: Path) -> None:
    first, _, third = write_parts(tmp_path)
    third.write_bytes(part_bytes(3, tensors()[9:11]))
    assert "'split.tensors.count' is 12, its 3 parts hold 11 tensors" in refusal(first)


def test_parts_with_swapped_names_are_refused(tmp_path: Path) -> None:
    first, second, third = write_parts(tmp_path)
    data = second.read_bytes()
    second.write_bytes(third.read_bytes())
    third.write_bytes(data)
    assert f"{second}: its name says part 2, its key 'split.no' part 3: parts were renamed" in refusal(first)


def test_name_with_another_count_is_refused(tmp_path: Path) -> None:
    first = write_parts(tmp_path)[0]
    other = first.rename(tmp_path / part_name(1, count=4))
    assert "its name does not end in -00001-of-00003.gguf" in refusal(other)


def test_split_count_of_one_is_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "one.gguf"
    path.write_bytes(build_gguf([*key_values(), *split_keys(1, count=1)])[0])
    assert len(open_model(path).tensors) == len(tensors())


@pytest.mark.parametrize(("count", "number"), [(0, 1), (1, 4)])
def test_a_count_of_one_or_none_makes_the_parts_number_idle(tmp_path: Path, count: int, number: int) -> None:
    path = tmp_path / "one.gguf"
    path.write_bytes(build_gguf([*key_values(), *split_keys(number, count=count)])[0])
    assert len(open_model(path).tensors) == len(tensors())


def test_more_parts_than_a_name_can_count_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny-00001-of-00002.gguf"
    path.write_bytes(build_gguf([*key_values(), ("split.count", T_U32, 100_000)])[0])
    assert refusal(path) == f"{path}: key 'split.count' is 100000; the limit is 99999 parts"
    path.write_bytes(build_gguf([*key_values(), ("split.count", T_U32, 99_999)])[0])
    assert "it is part 1 of 99999, but its name does not end in -00001-of-99999.gguf" in refusal(path)


@pytest.mark.parametrize("padding", [0, 1, 32])
def test_joined_parts_are_known_whatever_lies_between_them(tmp_path: Path, padding: int) -> None:
    first, second, _ = write_parts(tmp_path)
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(first.read_bytes() + bytes(padding) + second.read_bytes())
    assert "3 parts of a split model were joined into one file" in refusal(joined)


def test_a_first_part_with_its_right_name_may_have_bytes_after_its_data(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    first.write_bytes(first.read_bytes() + second.read_bytes())
    assert len(open_model(first).tensors) == len(tensors())


def test_a_later_part_under_a_strange_name_says_how_the_first_should_be_called(tmp_path: Path) -> None:
    second = write_parts(tmp_path)[1].rename(tmp_path / "second.gguf")
    assert "it is part 2 of 3 of a split model; open part 1, second-00001-of-00003.gguf" in refusal(second)


def test_parts_of_two_splits_of_one_model_do_not_mix(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    second.write_bytes(build_gguf(split_keys(2, count=2), tensors()[5:9])[0])
    assert refusal(first) == (
        f"{second}: it belongs to another model than {first.name}: key 'split.count' is 2 here, 3 there"
    )


def test_a_set_has_the_stamps_of_all_its_files(tmp_path: Path) -> None:
    paths = write_parts(tmp_path)
    for path, modified_ns in zip(paths, (5_000_000_000, 9_000_000_000, 7_000_000_000), strict=True):
        os.utime(path, ns=(modified_ns, modified_ns))
    source = open_model(paths[0])
    assert [file.path for file in source.files] == list(paths)
    assert [file.num_bytes for file in source.files] == [path.stat().st_size for path in paths]
    assert [file.modified_ns for file in source.files] == [5_000_000_000, 9_000_000_000, 7_000_000_000]
    assert source.path == paths[0]
    assert (source.format, source.header_digest.count("+")) == ("gguf", 2)


def test_damaged_later_part_is_named(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    second.write_bytes(second.read_bytes()[:-64])
    assert refusal(first).startswith(f"{second}: tensor")


def test_flipped_bytes_in_a_part_never_crash(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    data, randomness = bytearray(second.read_bytes()), random.Random(7)
    for _ in range(200):
        position = randomness.randrange(400)
        kept = data[position]
        data[position] ^= randomness.randrange(1, 256)
        second.write_bytes(data)
        with suppress(ModelFileError):
            open_model(first)
        data[position] = kept


def test_the_tensor_count_of_a_split_says_nothing_about_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "one.gguf"
    path.write_bytes(build_gguf([*key_values(), *split_keys(1, count=1, num_tensors=90)])[0])
    assert len(open_model(path).tensors) == len(tensors())


def test_the_end_id_and_the_template_are_there_when_the_file_has_them(tmp_path: Path) -> None:
    keys = [pair for pair in key_values() if pair[0] not in ("tokenizer.ggml.eos_token_id", "tokenizer.chat_template")]
    path = tmp_path / "one.gguf"
    path.write_bytes(build_gguf(keys)[0])
    assert (open_model(path).eos_token_ids, open_model(path).chat_template) == ((), None)
    said = [("tokenizer.ggml.eos_token_id", T_U32, 2), ("tokenizer.chat_template", T_STR, "{{ x }}")]
    path.write_bytes(build_gguf([*keys, *said])[0])
    assert (open_model(path).eos_token_ids, open_model(path).chat_template) == ((2,), "{{ x }}")
