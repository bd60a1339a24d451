"""The way out of a request for an embedding: nothing before its end, then one vector of unit length.

Lives on the engine's thread.
"""

import numpy as np
import numpy.typing as npt

from twostroke.core.event import FinishEvent, KVUsage, Timing, Usage
from twostroke.core.sequence import FinishReason, Sequence
from twostroke.core.step import SampledToken
from twostroke.engine.stream import Stream

NOT_FINITE = "a value of its embedding is not finite"


class EmbeddingStream(Stream):
    """One text's vector, cut to what was asked for and made unit length."""

    _embedding = b""

    def take(self, vector: npt.NDArray[np.float64]) -> str | None:
        """The pooled vector [width]; what is wrong with it, if anything."""
        wish = self.request.embedding
        assert wish is not None, f"{self.request.request_id} asks for no embedding"
        vector = vector[: wish.dimensions]
        length = np.sqrt(np.sum(vector * vector))
        if not np.isfinite(length):
            return NOT_FINITE
        self._embedding = (vector / (length or 1.0)).astype("<f4").tobytes()
        return None

    def accept(self, token: SampledToken) -> bool:
        """The prompt is read: there is no more to come."""
        return True

    def finish(self, sequence: Sequence, reason: FinishReason, *, now_s: float, kv: KVUsage, error: str | None) -> None:
        """Tell the end, with the vector where it was reached."""
        self.account.finish_s = now_s
        self._tell(
            FinishEvent(
                request_id=self.request.request_id,
                reason=reason,
                text="",
                usage=Usage(
                    prompt_tokens=sequence.num_prompt_tokens, cached_tokens=sequence.num_cached, completion_tokens=0
                ),
                timing=Timing(ttft_s=None, tpot_s=None, e2e_s=now_s - self.request.arrival_s, first_text_s=None),
                kv=kv,
                account=self.account,
                seed=self.request.seed,
                embedding=self._embedding if reason is FinishReason.STOP else b"",
                error=error or (None if reason is not FinishReason.ERROR else "the request failed"),
            )
        )
