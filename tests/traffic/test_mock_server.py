"""The mock keeps its schedule as a lower bound: no token leaves before its time, whoever asks."""

import asyncio

from tests.traffic.traffic_builders import mocked, run
from twostroke.traffic.mock_server import MODEL, MockSchedule
from twostroke.traffic.outcome import Outcome


def test_no_token_leaves_early_however_many_streams_there_are() -> None:
    schedule = MockSchedule(ttft_s=0.03, itl_s=0.004)

    async def ask() -> list[Outcome]:
        async with mocked(schedule) as server:
            body = server.body("a b", output_tokens=6)
            new = (Outcome(place=place, wanted_prompt=2, wanted_output=6) for place in range(5))
            return list(await asyncio.gather(*[server.answer(body, outcome) for outcome in new]))

    for outcome in run(ask()):
        since_sent = [time_s - outcome.sent_s for time_s in outcome.text_times]
        assert len(since_sent) == 6
        assert all(time_s >= 0.03 + place * 0.004 for place, time_s in enumerate(since_sent))


def test_a_chunk_of_several_tokens_leaves_with_its_last_one() -> None:
    async def ask() -> Outcome:
        async with mocked(MockSchedule(ttft_s=0.0, itl_s=0.01, tokens_per_chunk=2)) as server:
            return await server.answer(
                server.body("a", output_tokens=4), Outcome(place=0, wanted_prompt=1, wanted_output=4)
            )

    outcome = run(ask())
    assert (len(outcome.text_times), outcome.num_tokens) == (3, 4)
    assert outcome.text_times[1] - outcome.sent_s >= 0.02
    assert outcome.text_times[2] - outcome.sent_s >= 0.03


def test_it_speaks_the_routes_a_generator_asks() -> None:
    async def ask() -> list[object]:
        async with mocked() as server:
            listed = await server.client.get("/v1/models")
            counted = await server.client.post("/tokenize", {"model": MODEL, "prompt": "a b"})
            return [listed["data"][0]["id"], counted["count"]]

    assert run(ask()) == [MODEL, 2]
