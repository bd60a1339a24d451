"""`twostroke run`: one prompt, one answer on stdout, the phase report on stderr."""

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twostroke.chat.chat import Chat
from twostroke.cli.answer import Pending, follow
from twostroke.cli.beams import all_answers, said_beam
from twostroke.cli.chat_flags import ReasoningEffort, TemplateKwargs, ToolChoiceName, Tools, said_chat
from twostroke.cli.exit_code import ExitCode
from twostroke.cli.flag_words import told_in_flags
from twostroke.cli.idle_flags import refuse_details, refuse_idle
from twostroke.cli.loading import (
    ContextOption,
    DraftModelOption,
    KVOption,
    ModelOption,
    SpeculateOption,
    ThreadsOption,
    load,
)
from twostroke.cli.prompt import read_prompt
from twostroke.cli.sampler_flags import (
    BadWord,
    DryAllowedLength,
    DryBase,
    DryMultiplier,
    DryPenaltyLastN,
    DrySequenceBreaker,
    DynatempExponent,
    DynatempRange,
    MirostatEta,
    MirostatTau,
    NoRepeatNgramSize,
    PenaltyLastN,
    SamplerOrder,
    TopNSigma,
    TypicalP,
    XTCProbability,
    XTCThreshold,
)
from twostroke.cli.structure_flags import Choice, Grammar, JSONSchema, Regex, form_name, said_structure
from twostroke.cli.tries import Tries
from twostroke.config import Config, resolve
from twostroke.core.event import Event
from twostroke.core.likeliest import MAX_TRIES, same_tries
from twostroke.core.peaks import Peaks
from twostroke.core.report import Result
from twostroke.core.sequence import FinishReason
from twostroke.errors import ConfigError, RequestError
from twostroke.measure.peaks import ensure_peaks
from twostroke.model.catalog import DEFAULT_MODEL
from twostroke.params import SamplingParams
from twostroke.presets import PRESETS, Preset, preset as preset_named
from twostroke.view.json_report import json_report
from twostroke.view.phase_report import phase_report_lines
from twostroke.view.terminal import Terminal

if TYPE_CHECKING:
    from twostroke.llm import LLM

Asked = str | Chat  # raw text, or a conversation
PRESET_NAMES = ", ".join(each.name for each in PRESETS)


def run(
    prompt: Annotated[
        str | None, typer.Argument(help="The question; - reads it from stdin.", show_default=False)
    ] = None,
    *,
    model: ModelOption = DEFAULT_MODEL,
    system: Annotated[str | None, typer.Option(help="System message before the question.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is: no chat template.")] = False,
    preset: Annotated[str | None, typer.Option(help=f"A named choice of tokens: {PRESET_NAMES}.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 (default) takes the likeliest token.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Keep the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Keep the likeliest tokens up to this mass.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Drop tokens below this share of the likeliest.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1: repeat prompt and answer less.")] = None,
    presence_penalty: Annotated[float | None, typer.Option(help="Off tokens the answer has, -2 to 2.")] = None,
    frequency_penalty: Annotated[float | None, typer.Option(help="The same per occurrence, -2 to 2.")] = None,
    penalty_last_n: PenaltyLastN = None,
    typical_p: TypicalP = None,
    top_n_sigma: TopNSigma = None,
    dynatemp_range: DynatempRange = None,
    dynatemp_exponent: DynatempExponent = None,
    xtc_probability: XTCProbability = None,
    xtc_threshold: XTCThreshold = None,
    mirostat_tau: MirostatTau = None,
    mirostat_eta: MirostatEta = None,
    dry_multiplier: DryMultiplier = None,
    dry_base: DryBase = None,
    dry_allowed_length: DryAllowedLength = None,
    dry_penalty_last_n: DryPenaltyLastN = None,
    dry_sequence_breaker: DrySequenceBreaker = None,
    no_repeat_ngram_size: NoRepeatNgramSize = None,
    bad_word: BadWord = None,
    sampler_order: SamplerOrder = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same answer.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of the answer (default 256).")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be repeated.")] = None,
    stop_regex: Annotated[list[str] | None, typer.Option(help="End before what matches; may be repeated.")] = None,
    stop_token_id: Annotated[list[int] | None, typer.Option(help="End at this token; may be repeated.")] = None,
    include_stop: Annotated[bool, typer.Option("--include-stop", help="Show the stop that ended the answer.")] = False,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on past the model's end token.")] = False,
    logprobs: Annotated[int | None, typer.Option(help="With --json: log-probabilities and n best others.")] = None,
    prompt_logprobs: Annotated[int | None, typer.Option(help="The same of the prompt; --max-tokens 0: alone.")] = None,
    best_of: Annotated[int | None, typer.Option(help="Draw so many answers, show the likeliest per token.")] = None,
    beams: Annotated[int | None, typer.Option(help="Search for the likeliest answer with so many beams.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="With --beams: above 0 favours long answers.")] = None,
    early_stopping: Annotated[str | None, typer.Option(help="With --beams: true, false (default) or never.")] = None,
    num_return: Annotated[int | None, typer.Option(help="With --beams: answers to show, best first.")] = None,
    json_schema: JSONSchema = None,
    regex: Regex = None,
    choice: Choice = None,
    grammar: Grammar = None,
    tools: Tools = None,
    tool_choice: ToolChoiceName = None,
    reasoning_effort: ReasoningEffort = None,
    template_kwargs: TemplateKwargs = None,
    context: ContextOption = None,
    kv: KVOption = None,
    threads: ThreadsOption = None,
    speculate: SpeculateOption = None,
    draft_model: DraftModelOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text and report.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="The answer alone: no report, no progress.")] = False,
) -> None:
    """Answer one prompt, then show what each phase did."""
    for flag, value in (("--logprobs", logprobs), ("--prompt-logprobs", prompt_logprobs)):
        if value is not None and not as_json:
            raise ConfigError(f"{flag} needs --json, which has room for them")
    num_tries = said_tries(best_of, has_beams=beams is not None)
    named = None if preset is None else preset_named(preset)
    beam = said_beam(beams=beams, length_penalty=length_penalty, early_stopping=early_stopping, num_return=num_return)
    form = form_name(json_schema=json_schema, regex=regex, choice=choice, grammar=grammar)
    said = said_params(
        form=form,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        penalty_last_n=penalty_last_n,
        typical_p=typical_p,
        top_n_sigma=top_n_sigma,
        dynatemp_range=dynatemp_range,
        dynatemp_exponent=dynatemp_exponent,
        xtc_probability=xtc_probability,
        xtc_threshold=xtc_threshold,
        mirostat_tau=mirostat_tau,
        mirostat_eta=mirostat_eta,
        dry_multiplier=dry_multiplier,
        dry_base=dry_base,
        dry_allowed_length=dry_allowed_length,
        dry_penalty_last_n=dry_penalty_last_n,
        dry_sequence_breakers=tuple(dry_sequence_breaker) if dry_sequence_breaker else None,
        no_repeat_ngram_size=no_repeat_ngram_size,
        bad_words=tuple(bad_word) if bad_word else None,
        sampler_order=None if sampler_order is None else tuple(name.strip() for name in sampler_order.split(",")),
        seed=seed,
        max_tokens=max_tokens,
        stop=tuple(stop) if stop else None,
        stop_regex=tuple(stop_regex) if stop_regex else None,
        stop_token_ids=tuple(stop_token_id) if stop_token_id else None,
        include_stop=include_stop or None,
        ignore_eos=ignore_eos or None,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        beam=beam,
        structure=said_structure(json_schema=json_schema, regex=regex, choice=choice, grammar=grammar),
    )
    refuse_details(said)
    beside: dict[str, Any] = {
        "tools": tools,
        "tool_choice": tool_choice,
        "reasoning_effort": reasoning_effort,
        "template_kwargs": template_kwargs,
    }
    asked = question(prompt, system=system, raw=raw, **beside)
    config = resolve()
    answer = answer_json if as_json else answer_quietly if quiet else answer_and_report
    with (
        told_in_flags(form | ({} if named is None else preset_names(named, said))),
        load(
            model,
            config=config,
            threads=threads,
            context=context,
            kv=kv,
            quiet=quiet or as_json,
            speculate=speculate,
            draft_model=draft_model,
        ) as llm,
    ):
        defaults = llm.default_params if beam is None else llm.default_params.limits()
        if named is not None:
            defaults = named.within(llm.default_params)
            if not (quiet or as_json):
                line = f"preset {named.name}: {named.settings}; {named.reason}"
                Terminal.of(sys.stderr, config).write_lines([line])
        if stop:
            said["stop"] = defaults.and_stop(stop)
        params = dataclasses.replace(defaults, **said)
        refuse_idle(said, params)
        if why := same_tries("--best-of", num_tries, temperature=params.temperature):
            raise ConfigError(why)
        result = answer(llm, asked, params, config, num_tries=num_tries)
    leave(result)


def said_params(*, form: Mapping[str, str] | None = None, **wishes: Any) -> dict[str, Any]:
    """The wishes that were said, checked before any model is loaded; `form` is what a structure was written as.

    A preset or the model itself may bring a temperature: whether there is one to draw with is known then.
    """
    said = {name: value for name, value in wishes.items() if value is not None}
    with told_in_flags(form or {}):
        SamplingParams(**(said if "beam" in said else {"temperature": 1.0} | said))
    return said


def said_tries(best_of: int | None, *, has_beams: bool) -> int:
    """Answers to draw for the one that is shown."""
    if best_of is None:
        return 1
    if has_beams:
        raise ConfigError("--best-of draws answers and --beams searches for one: drop one of them")
    if not 1 <= best_of <= MAX_TRIES:
        raise ConfigError(f"--best-of is {best_of}: it must be from 1 to {MAX_TRIES}")
    return best_of


def preset_names(preset: Preset, said: Collection[str]) -> dict[str, str]:
    """What the user wrote for the fields that the preset sets: its name."""
    return {name: f"--preset {preset.name}" for name in preset.fields if name not in said}


def question(prompt: str | None, *, system: str | None, raw: bool, **beside: Any) -> Asked:
    """What to ask: messages for the chat template and what goes `beside` them, or the text alone."""
    for name, value in {"system": system, **beside}.items():
        if raw and value is not None:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} needs a chat template, which --raw leaves out: drop one of them")
    text = read_prompt(prompt, keep_line_end=raw)
    if raw:
        return text
    asked = [{"role": "user", "content": text}]
    return said_chat(asked if system is None else [{"role": "system", "content": system}, *asked], **beside)


def answer_and_report(
    llm: "LLM", asked: Asked, params: SamplingParams, config: Config, *, num_tries: int = 1
) -> Result:
    """Stream the answer to stdout, then the report to stderr."""
    result = answer_quietly(llm, asked, params, config, num_tries=num_tries)
    report = llm.report(result, peaks_of(llm, result, config))
    lines = phase_report_lines(result, report, with_seed=params.is_drawn)
    Terminal.of(sys.stderr, config).write_lines(["", *lines])
    return result


def answer_quietly(llm: "LLM", asked: Asked, params: SamplingParams, config: Config, *, num_tries: int = 1) -> Result:
    """Stream the answer and one line end to stdout."""
    out = Terminal.of(sys.stdout, config)
    has_several = params.beam is not None and params.beam.num_return > 1
    write = (lambda text: None) if has_several else out.write
    result = follow(submitter(llm, asked, params, num_tries), write)
    out.write(all_answers(result) + "\n" if has_several else "\n")
    return result


def answer_json(llm: "LLM", asked: Asked, params: SamplingParams, config: Config, *, num_tries: int = 1) -> Result:
    """One object on stdout once the answer has ended."""
    result = follow(submitter(llm, asked, params, num_tries), lambda text: None)
    report = llm.report(result, peaks_of(llm, result, config))
    shown = json_report(result, report, with_logprobs=params.logprobs is not None, with_seed=params.is_drawn)
    sys.stdout.write(json.dumps(shown, ensure_ascii=False, allow_nan=False) + "\n")
    return result


def submitter(
    llm: "LLM", asked: Asked, params: SamplingParams, num_tries: int
) -> Callable[[Callable[[Event], None]], Pending]:
    """What starts the request, or all tries of it."""
    if num_tries == 1:
        return lambda on_event: llm.submit(asked, params, on_event=on_event)
    scored = dataclasses.replace(params.with_seed(), logprobs=params.logprobs or 0)
    return lambda on_event: Tries(llm, asked, scored, num_tries=num_tries, on_event=on_event)


def peaks_of(llm: "LLM", result: Result, config: Config) -> Peaks:
    """The machine's peaks for this model, measured now unless they are known well enough for this result."""

    def are_beaten(peaks: Peaks) -> bool:
        report = llm.report(result, peaks)
        return any(use.utilisation is not None and use.utilisation > 1 for use in (report.prefill, report.decode))

    return ensure_peaks(
        home=config.home, isa=llm.isa, threads=llm.threads, weight_bytes=llm.weight_bytes, are_beaten=are_beaten
    )


def leave(result: Result) -> None:
    """The exit code of an answer that did not end by itself."""
    if result.finish_reason is FinishReason.ERROR:
        raise RequestError(f"the answer failed: {result.error}")
    if result.finish_reason is FinishReason.CANCELLED:
        raise typer.Exit(ExitCode.INTERRUPTED)
