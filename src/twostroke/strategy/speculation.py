"""How many drafted tokens to verify, zero included: as many as should pay by StepCost and by what was right so far.

A verified token costs what StepCost says the larger step takes longer, and what a draft model takes to guess it; a
right one saves its share of a step. What is lost, the time of looking included, is paid from purses (draft_purse.py):
a text that cannot be guessed costs no more than a small share of all work. Guesses from the text are nearly free and go
first; the model is asked for sequences without one worth taking. Called by the engine before plan and after commit.
"""

from collections.abc import Mapping, Sequence as Seq
from dataclasses import dataclass, field

from twostroke.core.event import DraftStop, NoDraft, Speculation
from twostroke.core.phase import Phase
from twostroke.core.sequence import Sequence
from twostroke.core.step import RowPlan
from twostroke.core.step_cost import StepCost
from twostroke.core.strategy import Drafter, DraftModel
from twostroke.strategy.draft_price import DraftedStep, best_count, expected_right, reading_seconds, round_seconds
from twostroke.strategy.draft_purse import LOOKUP_SHARE, MODEL_SHARE, Purse
from twostroke.strategy.draft_record import Acceptance, DecodeTime, DraftRecord
from twostroke.strategy.plain_spell import PlainSpell

MAX_DRAFT = 8  # tokens per sequence and step
CONTROL_EVERY = 32  # one decode step in so many goes without drafts: the other side of the measured gain
CREDIT_STEPS = 16  # a draft model may take as many steps' time to read its first text, before it has saved any
SAVE_STEPS = 4  # a purse that has too little is asked again in a step that this divides
LONGEST_SLEEP = 64  # steps without a look at a purse that can pay for no token, or at a model that could never pay
PROBE_EVERY = 16  # a sequence whose drafts do not pay is tried again with one token, if the purse allows


_Drafted = tuple[Sequence, DraftRecord]  # who may be drafted for, and what its drafts did so far


@dataclass(slots=True)
class _Offer:
    """A number of tokens for one sequence, and what it should cost beside the verifying."""

    sequence: Sequence
    record: DraftRecord
    num_tokens: int
    is_probe: bool  # it should not pay, but that is to be seen again
    draft_s: float = 0.0  # of the draft model for these tokens
    read_s: float = 0.0  # of the draft model before its first guess: lost for sure if nothing is right


@dataclass(slots=True)
class SpeculationControl:
    """The drafts of one engine: from the text, from a model, or both."""

    lookup: Drafter | None = None
    model: DraftModel | None = None
    _lookup_purse: Purse = field(default_factory=lambda: Purse(LOOKUP_SHARE))
    _model_purse: Purse = field(default_factory=lambda: Purse(MODEL_SHARE))
    _model_s: float = 0.0  # StepCost of the draft model for the present step
    _look_s: float = 0.0  # of the clock, the last call of `draft` without the model
    _poor_until: int = 0  # step; before it nothing is looked up in any text: the purse could pay for no token
    _poor_beside: int = 0  # while so many sequences decode
    _poor_stop: DraftStop | None = None  # in the words of that step
    _step: int = 0  # of the engine's steps with decode
    _num_since_plain: int = CONTROL_EVERY  # decode steps; the very first is a control too
    _time: DecodeTime = field(default_factory=DecodeTime)
    _spell: PlainSpell = field(default_factory=PlainSpell)
    _records: dict[int, DraftRecord] = field(default_factory=dict)

    @property
    def refused_share(self) -> float:
        """See core.strategy.Speculator."""
        self._book_spell()
        total_s = self._lookup_purse.total_s
        return (self._lookup_purse.lost_s + self._model_purse.lost_s) / total_s if total_s else 0.0

    def has_nothing(self, num_running: int) -> bool:
        """See core.strategy.Speculator."""
        return self._spell.skips(num_running)

    def draft(self, decoding: Seq[Sequence], cost: StepCost) -> Mapping[int, tuple[int, ...]]:
        """See core.strategy.Speculator."""
        self._book_spell()
        beside = len(decoding)
        self._step += 1 + self._spell.counted()
        records = [(each, self._record_of(each, beside=beside)) for each in decoding]
        if self._num_since_plain >= CONTROL_EVERY:
            return {}
        awake = [each for each in records if self._wakes(each[1], self._step, beside=beside) == self._step]
        drafts = self._guessed(awake, DraftedStep.of(decoding, cost)) if awake else {}
        if not drafts:
            following = self._step + 1
            wakes = min([self._wakes(record, following, beside=beside) for _, record in records])
            self._spell.sleep(wakes - following, num_sequences=beside)
        return drafts

    def _guessed(self, awake: Seq[_Drafted], step: DraftedStep) -> dict[int, tuple[int, ...]]:
        if self.lookup is not None and self._step >= self._saves_until(beside=step.num_sequences):
            self._save([record for _, record in awake], step)
        drafts, without = self._looked_up(awake, step)
        if self.model is not None and without:
            drafts |= self._ask(self.model, without, step)
        return drafts

    def _save(self, records: Seq[DraftRecord], step: DraftedStep) -> None:
        """Where the purse can pay for no token, nothing is looked for until it should pay for one and for a look."""
        purse, least_s = self._lookup_purse, step.least_extra_s()
        purse.lend(step.seconds)
        likeliest = max(records, key=lambda record: record.lookup.odds)
        missing_s = least_s * (1 - likeliest.lookup.odds) - purse.balance_s
        if missing_s > 0:
            num_steps = purse.num_steps_to(missing_s + self._look_s, step_s=step.seconds, most=LONGEST_SLEEP)
            self._poor_until, self._poor_beside = self._step + num_steps, step.num_sequences
            self._poor_stop = _poor_stop(likeliest, step, least_s=least_s)
            for record in records:
                record.stop = record.stop or self._poor_stop

    def _saves_until(self, *, beside: int) -> int:
        """The first step in which the purse is asked again. What a token costs follows from the batch."""
        return self._poor_until if beside == self._poor_beside else 0

    def _looked_up(self, awake: Seq[_Drafted], step: DraftedStep) -> tuple[dict[int, tuple[int, ...]], list[_Drafted]]:
        """Guesses from the text that should pay, and the sequences without one."""
        purse, drafts, without = self._lookup_purse, {}, []
        left_s, least_s = purse.balance_s, step.least_extra_s()
        for sequence, record in awake:
            if not _most(sequence):
                continue
            guess: tuple[int, ...] = ()
            if self.lookup is not None and self._next_look(record, self._step, beside=step.num_sequences) == self._step:
                if (missing_s := least_s * (1 - record.lookup.odds) - left_s) > 0:
                    record.stop = record.stop or _poor_stop(record, step, least_s=least_s)
                    self._wait(record.lookup, purse, missing_s, step)
                else:
                    guess = self._guess(self.lookup, sequence, record, beside=step.num_sequences)
            offer = self._look_up(sequence, record, step, num_guessed=len(guess), left_s=left_s) if guess else None
            if offer is None:
                without.append((sequence, record))
            elif (paid_s := self._paid(offer, record.lookup, step, purse, left_s=left_s)) is not None:
                left_s -= paid_s
                drafts[sequence.sequence_id] = guess[: offer.num_tokens]
        return drafts, without

    def _record_of(self, sequence: Sequence, *, beside: int) -> DraftRecord:
        """As it stands before the step; begun with its first."""
        record = self._records.get(sequence.sequence_id)
        if record is None:
            record = DraftRecord(self._time.wall_s, self._time.plain_cost_s)
            record.stop = self._poor_stop if self._step < self._saves_until(beside=beside) else None
            self._records[sequence.sequence_id] = record
        record.guesser = None
        return record

    def _wakes(self, record: DraftRecord, step: int, *, beside: int) -> int:
        """The first step from this one on in which some guess for it is worth a look."""
        if self.model is None:
            return self._next_look(record, step, beside=beside)
        model_wakes = record.model.wakes(step, beside=beside)
        return model_wakes if self.lookup is None else min(model_wakes, self._next_look(record, step, beside=beside))

    def _next_look(self, record: DraftRecord, step: int, *, beside: int) -> int:
        """The first step from this one on in which a look into its text is worth it."""
        return max(record.lookup.wakes(step, beside=beside), self._saves_until(beside=beside))

    def _guess(self, lookup: Drafter, sequence: Sequence, record: DraftRecord, *, beside: int) -> tuple[int, ...]:
        guess = tuple(lookup.propose(sequence, min(_most(sequence), record.lookup.reach)))
        if not guess and self.model is None and record.stop is None:
            record.stop = DraftStop(NoDraft.NO_GUESS, record.lookup.odds, 0.0, 0.0, beside)
        return guess

    def _wait(
        self, acceptance: Acceptance, purse: Purse, missing_s: float, step: DraftedStep, *, every: int = SAVE_STEPS
    ) -> None:
        """Nothing of it is looked at until the purse should hold what is missing, and for the look before."""
        num_steps = purse.num_steps_to(missing_s + self._look_s, step_s=step.seconds, most=PROBE_EVERY)
        acceptance.sleep(self._step, num_steps=num_steps, every=every, beside=step.num_sequences)

    def _look_up(
        self, sequence: Sequence, record: DraftRecord, step: DraftedStep, *, num_guessed: int, left_s: float
    ) -> _Offer | None:
        """As much of a guess from the text as should pay, and as `left_s` in the purse can pay for."""
        count, _ = best_count(
            record.lookup.odds,
            token_s=step.seconds / step.num_sequences,
            price=lambda num: step.extra_s(sequence, num),
            most=num_guessed,
        )
        if not count:
            record.stop = _stop(NoDraft.COST, record.lookup, step, sequence)
            is_probe = record.lookup.has_slept(self._step)
            record.lookup.sleep(self._step, every=PROBE_EVERY, beside=step.num_sequences)
            if not is_probe:
                return None
        while count > 1 and step.extra_s(sequence, count) * (1 - record.lookup.odds) > left_s:
            count -= 1
        return _Offer(sequence, record, count or 1, is_probe=not count)

    def _paid(
        self, offer: _Offer, acceptance: Acceptance, step: DraftedStep, purse: Purse, *, left_s: float
    ) -> float | None:
        """Let an offer join the step; what it takes from the purse, or None where too little is left in that."""
        extra_s = step.extra_s(offer.sequence, offer.num_tokens)
        risk_s = offer.read_s + (extra_s + offer.draft_s) * (1 - acceptance.odds)
        if risk_s > left_s or left_s <= 0:
            if not offer.is_probe:
                draft_s = offer.draft_s / offer.num_tokens
                offer.record.stop = _stop(NoDraft.SHARE, acceptance, step, offer.sequence, draft_s=draft_s)
            self._wait(acceptance, purse, risk_s - left_s, step, every=PROBE_EVERY if offer.is_probe else SAVE_STEPS)
            return None
        offer.record.guesser = acceptance
        if not offer.is_probe:
            offer.record.stop = None
        step.add(offer.sequence, offer.num_tokens)
        return risk_s

    def _ask(self, model: DraftModel, asking: Seq[_Drafted], step: DraftedStep) -> dict[int, tuple[int, ...]]:
        """Guesses of the draft model, for those for which they should pay."""
        self._model_purse.lend(CREDIT_STEPS * step.seconds)
        wishes: list[tuple[Sequence, int]] = []
        left_s = self._model_purse.balance_s
        for offer in self._offers(model, asking, step):
            if (paid_s := self._paid(offer, offer.record.model, step, self._model_purse, left_s=left_s)) is not None:
                left_s -= paid_s
                wishes.append((offer.sequence, offer.num_tokens))
        if not wishes:
            return {}
        spent_s = model.total_s
        guesses = model.propose(wishes)
        self._model_s = model.total_s - spent_s
        for sequence, _ in wishes:
            if not guesses.get(sequence.sequence_id):
                record = self._records[sequence.sequence_id]
                record.stop = _stop(model.why_not(sequence) or NoDraft.READING, record.model, step, sequence)
        return {sequence_id: guess for sequence_id, guess in guesses.items() if guess}

    def _offers(self, model: DraftModel, asking: Seq[_Drafted], step: DraftedStep) -> list[_Offer]:
        """What should pay. The rounds of the model are shared: who drops out makes them dearer for the others."""
        sharing = []
        for sequence, record in asking:
            if (reason := model.why_not(sequence)) is None:
                sharing.append((sequence, record))
            else:
                record.stop = _stop(reason, record.model, step, sequence)
                record.model.sleep(self._step, every=PROBE_EVERY, beside=step.num_sequences)
        cost = model.cost()
        while sharing:
            made = [self._offer_of(model, cost, each, step, num_sharing=len(sharing)) for each in sharing]
            offers = [offer for offer in made if offer is not None]
            if len(offers) == len(sharing):
                return offers
            sharing = [(offer.sequence, offer.record) for offer in offers]
        return []

    def _offer_of(
        self,
        model: DraftModel,
        cost: StepCost,
        asking: _Drafted,
        step: DraftedStep,
        *,
        num_sharing: int,
    ) -> _Offer | None:
        sequence, record = asking
        odds, token_s = record.model.odds, step.seconds / step.num_sequences
        most = min(_most(sequence), record.model.reach)
        round_s = round_seconds(cost, start_pos=sequence.num_computed, num_sequences=num_sharing)

        def price(num: int) -> float:
            return step.extra_s(sequence, num) + num * round_s

        count, gain_s = best_count(odds, token_s=token_s, price=price, most=most)
        if not count:
            record.stop = _stop(NoDraft.COST, record.model, step, sequence, draft_s=round_s)
            may_pay = best_count(1.0, token_s=token_s, price=price, most=most)[0] > 0
            is_probe = may_pay and record.model.has_slept(self._step)
            every = PROBE_EVERY if may_pay else LONGEST_SLEEP
            record.model.sleep(self._step, every=every, beside=step.num_sequences)
            if not is_probe:
                return None
        num_unread, num_left = model.num_unread(sequence), _num_left(sequence)
        read_s = reading_seconds(cost, num_tokens=sequence.num_tokens, num_unread=num_unread)
        if count and read_s > gain_s * num_left / (1 + expected_right(odds, count)):
            record.stop = _stop(NoDraft.COST, record.model, step, sequence, draft_s=round_s + read_s / num_left)
            return None
        return _Offer(sequence, record, count or 1, not count, draft_s=(count or 1) * round_s, read_s=read_s)

    def learn(
        self, rows: Seq[RowPlan], num_grown: Mapping[int, int], *, cost: StepCost, wall_s: float, draft_s: float
    ) -> None:
        """See core.strategy.Speculator."""
        model_s, self._model_s = self._model_s, 0.0
        if draft_s and not model_s:  # a model is paid by StepCost, and dwarfs what else was looked at
            self._look_s = draft_s
            self._lookup_purse.pay(draft_s)
        if not (num_grown or model_s) and self._spell.takes(rows, wall_s=wall_s):
            return
        self._book_spell()
        step_s = cost.seconds(rows)
        self._earn(step_s)
        num_decodes = sum([row.phase is Phase.DECODE for row in rows])
        if not num_decodes:
            return
        drafted = [row for row in rows if row.draft_token_ids]
        plain_s = cost.seconds(row.without_drafts for row in rows) if drafted else step_s
        is_plain, is_alone = not (drafted or model_s), num_decodes == len(rows)
        self._num_since_plain = 0 if is_plain else self._num_since_plain + 1
        if is_alone:  # a prefill beside it is no matter of drafts
            self._time.see(wall_s=wall_s, plain_cost_s=plain_s, is_plain=is_plain)
        if is_plain:
            self._spell.begin(len(rows) if is_alone else 0, step_s=step_s)
            return
        self._spell.begin(0, step_s=0.0)
        self._settle(drafted, num_grown, extra_s=step_s - plain_s, model_s=model_s, token_s=plain_s / num_decodes)
        for row in drafted:
            if (record := self._records.get(row.sequence_id)) is not None:
                record.verify(
                    num_drafted=len(row.draft_token_ids),
                    num_accepted=max(num_grown.get(row.sequence_id, 0) - 1, 0),
                    plain_cost_s=plain_s if is_alone else 0.0,
                )

    def _book_spell(self) -> None:
        """The plain steps since the last that was booked."""
        spell = self._spell
        if spell.num_steps:
            cost_s = spell.num_steps * spell.step_s
            self._earn(cost_s)
            self._time.see(wall_s=spell.wall_s, plain_cost_s=cost_s, is_plain=True)
            self._num_since_plain = 0
            spell.begin(spell.num_rows, step_s=spell.step_s)

    def _earn(self, step_s: float) -> None:
        for purse in (self._lookup_purse, self._model_purse):
            purse.earn(step_s)

    def _settle(
        self,
        drafted: Seq[RowPlan],
        num_grown: Mapping[int, int],
        *,
        extra_s: float,
        model_s: float,
        token_s: float,
    ) -> None:
        """Book what guessing and verifying took and saved; the larger step is paid by the drafted token."""
        num_all = sum(len(row.draft_token_ids) for row in drafted)
        is_models = {row.sequence_id: self._is_models(row.sequence_id) for row in drafted}
        for purse, of_model in ((self._lookup_purse, False), (self._model_purse, True)):
            rows = [row for row in drafted if is_models[row.sequence_id] is of_model]
            num_drafted = sum(len(row.draft_token_ids) for row in rows)
            num_accepted = sum(max(num_grown.get(row.sequence_id, 0) - 1, 0) for row in rows)
            spent_s = (extra_s * num_drafted / num_all if num_all else 0.0) + (model_s if of_model else 0.0)
            refused_share = (num_drafted - num_accepted) / num_drafted if num_drafted else 1.0
            purse.settle(spent_s=spent_s, saved_s=num_accepted * token_s, refused_share=refused_share)

    def _is_models(self, sequence_id: int) -> bool:
        record = self._records.get(sequence_id)
        return record is not None and record.guesser is record.model

    def release(self, sequence_id: int) -> None:
        """See core.strategy.Speculator."""
        if self.model is not None:
            self.model.forget(sequence_id)

    def forget(self, sequence_id: int) -> Speculation | None:
        """See core.strategy.Speculator."""
        self._book_spell()
        self._spell.sleep(0, num_sequences=0)
        kv_bytes = 0
        if self.lookup is not None:
            self.lookup.forget(sequence_id)
        if self.model is not None:
            kv_bytes = self.model.held_bytes(sequence_id)
            self.model.forget(sequence_id)
        record = self._records.pop(sequence_id, None)
        return None if record is None else record.told(self._time, kv_bytes=kv_bytes)


def _num_left(sequence: Sequence) -> int:
    """Tokens its answer may grow by with drafts: the last one needs none."""
    return sequence.request.params.max_tokens - sequence.num_output_tokens - 1


def _most(sequence: Sequence) -> int:
    return max(min(MAX_DRAFT, _num_left(sequence)), 0)


def _poor_stop(record: DraftRecord, step: DraftedStep, *, least_s: float) -> DraftStop:
    """The purse could not pay for a single token of it, so none was looked for."""
    token_s, odds = step.seconds / step.num_sequences, record.lookup.odds
    reason = NoDraft.COST if least_s >= odds * token_s else NoDraft.SHARE
    return DraftStop(reason, odds, verify_share=least_s / token_s, draft_share=0.0, num_sequences=step.num_sequences)


def _stop(
    reason: NoDraft, acceptance: Acceptance, step: DraftedStep, sequence: Sequence, *, draft_s: float = 0.0
) -> DraftStop:
    token_s = step.seconds / step.num_sequences
    return DraftStop(
        reason,
        acceptance=acceptance.odds,
        verify_share=step.extra_s(sequence, 1) / token_s,
        draft_share=draft_s / token_s,
        num_sequences=step.num_sequences,
    )
