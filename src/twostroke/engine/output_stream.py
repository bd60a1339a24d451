"""One sequence's way out: from sampled ids to showable text, stop strings, events and the closing account.

Lives on the engine's thread. `accept` decides (before commit), `hand_over` and `finish` tell (after it).
"""

from collections.abc import Iterable

from twostroke.core.event import FinishEvent, KVUsage, Speculation, Timing, TokenEvent, Usage
from twostroke.core.request import Request
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.step import SampledToken, ScoredToken
from twostroke.engine.stream import Listener, Stream, TextStream
from twostroke.sample.stop import StopMatcher


class OutputStream(Stream):
    """Text and events of one sequence."""

    def __init__(self, request: Request, *, text: TextStream, listener: Listener) -> None:
        super().__init__(request, listener=listener)
        self._text = text
        self._stop = StopMatcher(request.params.stop, request.stop_patterns, includes_match=request.params.include_stop)
        self._pending: list[tuple[SampledToken, str]] = []  # of this step: one, or several with right drafts
        self._scores: list[ScoredToken] = []
        self._last_token_s: float | None = None
        self._first_text_s: float | None = None
        self.speculation: Speculation | None = None  # set at the end where drafts were tried
        self._num_accepted = 0
        self._num_handed = 0

    def take_scores(self, scores: Iterable[ScoredToken]) -> None:
        """The log-probabilities of the next prompt tokens; the first event tells all of them."""
        self._scores += scores

    def _told_scores(self) -> tuple[ScoredToken, ...]:
        """Those of the whole prompt, once; none of a prompt that was not read to its end."""
        prompt = self.request.prompt_token_ids
        is_told = self._num_handed > 1 or self.request.params.prompt_logprobs is None
        if is_told or len(self._scores) < len(prompt) - 1:
            return ()
        return (ScoredToken(prompt[0]), *self._scores)

    def accept(self, token: SampledToken) -> bool:
        """Take the next token; True when its text completes a stop. Stop ids show no text unless asked to."""
        text = ""
        if token.token_id not in self.request.stop_token_ids or self.request.params.include_stop:
            text = self._guarded(lambda: self._next_text(token.token_id))
        self._num_accepted += 1
        self._pending.append((token, text))
        return self._stop.matched is not None

    def _next_text(self, token_id: int) -> str:
        text = self._text.push(token_id)
        is_early = self._num_accepted + 1 < self.request.params.min_tokens  # nothing may end the answer yet
        return text if is_early else self._stop.feed(text)

    def hand_over(self, now_s: float) -> None:
        """Tell the accepted tokens, if there are any."""
        pending, self._pending = self._pending, []
        if pending and self._is_held(pending):
            self.account.held.add(len(self.account.steps) - 1)
        for token, text in pending:
            self._hand_over(token, text, now_s)

    def _is_held(self, pending: list[tuple[SampledToken, str]]) -> bool:
        """Whether all of a step's text waits for more; an end token has none."""
        return not any(text or token.token_id in self.request.stop_token_ids for token, text in pending)

    def _hand_over(self, token: SampledToken, text: str, now_s: float) -> None:
        if self.account.first_token_s is None:
            self.account.first_token_s = now_s
        if text and self._first_text_s is None:
            self._first_text_s = now_s
        self._last_token_s = now_s
        self._num_handed += 1
        self._tell(
            TokenEvent(
                request_id=self.request.request_id,
                token_id=token.token_id,
                text=text,
                time_s=now_s,
                logprob=token.logprob,
                top_logprobs=token.top_logprobs,
                prompt_logprobs=self._told_scores(),
            )
        )

    def finish(self, sequence: Sequence, reason: FinishReason, *, now_s: float, kv: KVUsage, error: str | None) -> None:
        """Tell the end, with whatever text was held back (nothing after a stop string); a fault makes it an error."""
        text = self._guarded(lambda: self._stop.feed(self._text.flush()) + self._stop.flush())
        if self.fault is not None:
            reason, error = FinishReason.ERROR, error or self.fault
        if text and self._first_text_s is None:
            self._first_text_s = now_s
        self.account.finish_s = now_s
        self._tell(
            FinishEvent(
                request_id=self.request.request_id,
                reason=reason,
                text=text,
                usage=Usage(
                    prompt_tokens=sequence.num_prompt_tokens,
                    cached_tokens=sequence.num_cached,
                    completion_tokens=sequence.num_output_tokens,
                ),
                timing=self._timing(now_s),
                kv=kv,
                account=self.account,
                seed=self.request.seed,
                stop_reason=self._stop_reason(sequence) if reason is FinishReason.STOP else None,
                speculation=self.speculation,
                prompt_logprobs=() if self._num_handed else self._told_scores(),
                error=error or (None if reason is not FinishReason.ERROR else "the request failed"),
            )
        )

    def _stop_reason(self, sequence: Sequence) -> str | int | None:
        last = sequence.token_ids[-1]
        is_asked_for = last in self.request.params.stop_token_ids
        return self._stop.matched or (last if is_asked_for else None)

    def _timing(self, finish_s: float) -> Timing:
        first_s, arrival_s = self.account.first_token_s, self.request.arrival_s
        tpot_s = None
        if first_s is not None and self._last_token_s is not None and self._num_handed > 1:
            tpot_s = (self._last_token_s - first_s) / (self._num_handed - 1)
        return Timing(
            ttft_s=None if first_s is None else first_s - arrival_s,
            tpot_s=tpot_s,
            e2e_s=finish_s - arrival_s,
            first_text_s=None if self._first_text_s is None else self._first_text_s - arrival_s,
        )
