"""The way out of a beam search: nothing can be told before its end, then the best answer and all that were asked for.

Lives on the engine's thread.
"""

from collections.abc import Callable

from twostroke.core.event import Beam, FinishEvent, KVUsage, Timing, TokenEvent, Usage
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.strategy import Chooser, Hypothesis
from twostroke.engine.stream import Listener, Stream, TextStream
from twostroke.sample.stop import StopMatcher


class BeamStream(Stream):
    """Events of one group of sequences."""

    def __init__(
        self, request: Request, *, chooser: Chooser, new_text: Callable[[Request], TextStream], listener: Listener
    ) -> None:
        super().__init__(request, listener=listener)
        self._chooser = chooser
        self._new_text = new_text

    def finish(self, sequence: Sequence, reason: FinishReason, *, now_s: float, kv: KVUsage, error: str | None) -> None:
        """Tell every token of the best answer, then the end. What had finished is told of a cancelled search too."""
        beams = tuple([self._beam(hypothesis) for hypothesis in self._chooser.hypotheses()])
        if self.fault is not None:
            reason, error, beams = FinishReason.ERROR, error or self.fault, ()
        self.account.finish_s = now_s
        if beams:
            self.account.first_token_s = now_s
            for token_id in beams[0].token_ids:
                self._tell(TokenEvent(request_id=self.request.request_id, token_id=token_id, text="", time_s=now_s))
        after_s = now_s - self.request.arrival_s
        told_s = after_s if beams else None
        self._tell(
            FinishEvent(
                request_id=self.request.request_id,
                reason=reason,
                text=beams[0].text if beams else "",
                usage=Usage(
                    prompt_tokens=sequence.num_prompt_tokens,
                    cached_tokens=sequence.num_cached,
                    completion_tokens=sum(len(beam.token_ids) for beam in beams),
                ),
                timing=Timing(
                    ttft_s=told_s,
                    tpot_s=None,  # all tokens come at once
                    e2e_s=after_s,
                    first_text_s=told_s if beams and beams[0].text else None,
                ),
                kv=kv,
                account=self.account,
                seed=self.request.seed,
                stop_reason=beams[0].stop_reason if beams else None,
                error=error or (None if reason is not FinishReason.ERROR else "the request failed"),
                beams=beams,
            )
        )

    def _beam(self, hypothesis: Hypothesis) -> Beam:
        params, last = self.request.params, hypothesis.token_ids[-1]
        stop = StopMatcher(params.stop, includes_match=params.include_stop)
        return Beam(
            text=self._guarded(lambda: self._text_of(hypothesis.token_ids, stop)),
            token_ids=hypothesis.token_ids,
            score=hypothesis.score,
            finish_reason=hypothesis.reason,
            stop_reason=stop.matched or (last if last in params.stop_token_ids else None),
        )

    def _text_of(self, token_ids: tuple[int, ...], stop: StopMatcher) -> str:
        """What the answer shows: nothing behind a stop string; it and a stop id only where they were asked for."""
        text, hidden = self._new_text(self.request), self.request.stop_token_ids
        if self.request.params.include_stop:
            hidden = frozenset()
        shown = [token_id for token_id in token_ids if token_id not in hidden]
        pieces = [stop.feed(piece) for piece in (*map(text.push, shown), text.flush())]
        return "".join([*pieces, stop.flush()])
