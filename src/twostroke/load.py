"""From a model file to a running engine: the one place that knows every room. Called by LLM alone."""

import hashlib
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

from twostroke import _native
from twostroke.cache.cache import KVCache
from twostroke.cache.config import CacheConfig
from twostroke.config import MAX_THREADS, Config
from twostroke.core.clock import Clock
from twostroke.core.cost_file import CostKey, MeasuredCost, read_measured
from twostroke.core.pooling import Pooling, PoolingKind
from twostroke.core.request import Request
from twostroke.core.strategy import Speculator
from twostroke.engine.bind import Binder
from twostroke.engine.candidates import FEWEST_ROWS
from twostroke.engine.cores import cpu_model, usable_cores, usable_cpus
from twostroke.engine.cost_fit import StepCostFit, StepCounts, assumed_cost
from twostroke.engine.draft_model import ModelDrafter
from twostroke.engine.engine import Engine
from twostroke.engine.kv_store import KVSize, available_memory_bytes, plan_kv, token_bytes
from twostroke.engine.pooler import Pooler
from twostroke.errors import ConfigError
from twostroke.model.defaults import ModelDefaults
from twostroke.model.families import build_program
from twostroke.model.json_file import read_json_object
from twostroke.model.open import open_model
from twostroke.model.packed_store import PackedStore
from twostroke.model.pooling import read_pooling
from twostroke.model.source import ModelSource
from twostroke.phase_threads import PhaseThreads
from twostroke.program.cost import ProgramCost, Row, fold_costs
from twostroke.program.native import NativeReader
from twostroke.program.packed import packed_layout
from twostroke.program.program import Program
from twostroke.program.reader import KVSpec, Precision
from twostroke.sample.sampler import Sampler
from twostroke.schedule.config import SchedulerConfig
from twostroke.schedule.scheduler import Scheduler
from twostroke.strategy.beam import BeamChooser
from twostroke.strategy.ngram import NgramDrafter
from twostroke.strategy.speculation import SpeculationControl
from twostroke.text.chat_template import NO_TEMPLATE, ChatTemplate
from twostroke.text.closing_token import closing_token
from twostroke.text.detokenizer import Detokenizer
from twostroke.text.folder_tokenizer import tokenizer_from_folder
from twostroke.text.gguf_tokenizer import tokenizer_from_gguf
from twostroke.text.known_templates import known_template
from twostroke.text.same_vocabulary import vocabulary_difference
from twostroke.text.tokenizer import Tokenizer

logger = logging.getLogger("twostroke")

BLOCK_SIZE = 16  # one sub-block of the KV layout: the least waste, and prefixes match to 16 tokens
MAX_STEP_TOKENS = 512  # tokens of one step: enough for the GEMM kernels to reach their rate
ARITHMETIC_VERSION = 2  # of the numeric contract's kernels: a change makes cached KV another model's
MAX_ROWS = 32  # sequences in one step
DEFAULT_PRECISION: Precision = "bf16"


@dataclass(frozen=True, slots=True)
class LoadedText:
    """How a model reads and writes."""

    tokenizer: Tokenizer
    chat_template: ChatTemplate
    end_ids: frozenset[int]
    closing_id: int | None = None  # what the file wants behind a text that is embedded


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What a loaded model consists of."""

    path: Path
    fingerprint: str  # of the weights
    program: Program
    text: LoadedText
    kv: KVSize
    reader: NativeReader
    sampler: Sampler
    engine: Engine
    drafter: ModelDrafter | None
    cost: ProgramCost
    counts: StepCounts
    cost_key: CostKey
    fit: StepCostFit
    threads: int
    pooling: Pooling | None  # of a model that embeds

    def close(self) -> None:
        """Free weights, KV and threads; a closed model may be closed again."""
        self.sampler.close()
        if self.drafter is not None:
            self.drafter.reader.close()
        self.reader.close()


def load_model(
    path: Path,
    *,
    config: Config,
    clock: Clock,
    threads: int | None,
    context: int | None,
    kv: str | None,
    defaults: ModelDefaults,
    scheduler: SchedulerConfig | None = None,
    speculate: str | None = None,
    memory_bytes: int | None = None,
    draft_model: Path | None = None,
) -> LoadedModel:
    """Open, build, size and pack; the tokenizer is made beside the packing of the weights."""
    precision, lookup = kv_precision(kv), _lookup(speculate)
    stated = config.threads if threads is None else threads
    num_threads = _threads(threads, config)
    source = open_model(path)
    key = _cost_key(source, config, precision=precision, threads=stated)
    measured = read_measured(key.path(config.home))
    phase_threads = PhaseThreads(num_threads, num_threads)
    if stated is None and measured is not None:
        phase_threads = PhaseThreads(*(min(each, usable_cpus()) for each in measured.threads))
    draft = None if draft_model is None else _open_draft(draft_model)
    own = _load_own(
        source,
        config=config,
        defaults=defaults,
        limits=scheduler or SchedulerConfig(max_rows=MAX_ROWS, max_step_tokens=MAX_STEP_TOKENS),
        precision=precision,
        context=context,
        memory_bytes=memory_bytes,
        threads=phase_threads.most,
        draft=draft,
    )
    own.reader.threads = phase_threads
    drafter = None if draft is None else _load_draft(draft, own, config=config, clock=clock, threads=stated)
    cost = fold_costs(own.program, kv_precision=precision)
    counts = _step_counts(own.program, cost)
    fit = _cost_fit(counts, measured)
    speculator = None if lookup is None and drafter is None else SpeculationControl(lookup, drafter)
    return LoadedModel(
        path=path,
        fingerprint=source.fingerprint,
        program=own.program,
        text=own.text,
        kv=own.size,
        reader=own.reader,
        sampler=own.sampler,
        engine=_engine(own, clock=clock, fit=fit, speculator=speculator),
        drafter=drafter,
        cost=cost,
        counts=counts,
        cost_key=key,
        fit=fit,
        threads=phase_threads.most,
        pooling=own.pooling,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Own:
    """The model itself: all it needs to run, with nothing yet that runs it or drafts for it."""

    source: ModelSource
    program: Program
    pooling: Pooling | None
    text: LoadedText
    limits: SchedulerConfig
    size: KVSize
    reader: NativeReader
    sampler: Sampler
    available_bytes: int  # when its memory was planned


def _load_own(
    source: ModelSource,
    *,
    config: Config,
    defaults: ModelDefaults,
    limits: SchedulerConfig,
    precision: Precision,
    context: int | None,
    memory_bytes: int | None,
    threads: int,
    draft: "_OpenedDraft | None",
) -> _Own:
    """Weights and text, one beside the other; `draft` gets its part of the memory."""
    program, pooling = build_program(source), read_pooling(source)
    if draft is not None:
        _refuse_embedding(program, draft.program)
    if pooling is not None:
        limits = replace(limits, enable_prefix_cache=pooling.kind is PoolingKind.LAST)  # others need every state
    available = available_memory_bytes()
    if memory_bytes is not None:
        available = min(available, memory_bytes)
    with ThreadPoolExecutor(max_workers=1) as pool:
        reading = pool.submit(load_text, source, home=config.home, why_no_template=defaults.why_no_template)
        size = size_kv(
            program,
            limits,
            precision=precision,
            context=default_context(program, defaults) if context is None else context,
            available_bytes=available,
            beside=None if draft is None else draft.program,
        )
        reader = _reader(source, program, limits, config, kv=size.spec, threads=threads)
        text = reading.result()
    if pooling is not None:
        text = replace(text, closing_id=_closing_id(source, text.tokenizer))
    return _Own(
        source=source,
        program=program,
        pooling=pooling,
        text=text,
        limits=limits,
        size=size,
        reader=reader,
        sampler=Sampler(min(program.vocab_size, text.tokenizer.vocab_size), isa=reader.isa, pool=reader.pool),
        available_bytes=available,
    )


@dataclass(frozen=True, slots=True)
class _OpenedDraft:
    """A draft model that was looked at and takes no memory yet."""

    path: Path
    source: ModelSource
    program: Program


def _refuse_embedding(*programs: Program) -> None:
    """Drafts are tokens: neither a model without a next token has a use for them nor has one any to give."""
    if not all(program.has_head for program in programs):
        raise ConfigError("a draft model is given, and it or the model embeds: there is nothing to draft, leave it out")


def _open_draft(path: Path) -> _OpenedDraft:
    source = open_model(path)
    return _OpenedDraft(path, source, build_program(source))


def _load_draft(draft: _OpenedDraft, own: _Own, *, config: Config, clock: Clock, threads: int | None) -> ModelDrafter:
    """Ready to guess on the other model's threads. Raises ConfigError where its vocabulary is another."""
    program, limits, precision = draft.program, own.limits, own.size.spec.precision
    _check_vocabulary(draft, own, home=config.home)
    size = size_kv(
        program,
        limits,
        precision=precision,
        context=None,
        available_bytes=own.available_bytes,
        beside=own.program,
        most_context=own.size.context,
    )
    reader = _reader(draft.source, program, limits, config, kv=size.spec, threads=0, pool=own.reader.pool)
    measured = read_measured(_cost_key(draft.source, config, precision=precision, threads=threads).path(config.home))
    reader.threads = own.reader.threads  # of each phase, as found best for the larger model: they share its pool
    cache = _cache(draft.source, program, size=size, isa=reader.isa)
    drafter = ModelDrafter(
        reader=reader,
        cache=cache,
        binder=_binder(cache, program, limits, size=size),
        sampler=own.sampler,
        clock=clock,
        fit=_cost_fit(_step_counts(program, fold_costs(program, kv_precision=precision)), measured),
        kv_size=size,
        max_step_tokens=limits.max_step_tokens,
        candidates_from=FEWEST_ROWS if reader.brings_candidates else None,
    )
    drafter.warm_up()
    return drafter


def _check_vocabulary(draft: _OpenedDraft, own: _Own, *, home: Path) -> None:
    tokenizer = load_text(draft.source, home=home).tokenizer
    difference = vocabulary_difference(own.text.tokenizer, tokenizer)
    if difference is None and draft.program.vocab_size < own.sampler.vocab_size:
        difference = f"weights know {draft.program.vocab_size} tokens, not {own.sampler.vocab_size}"
    if difference is not None:
        raise ConfigError(
            f"draft model {draft.path.name} cannot guess for {own.source.path.name}: its {difference}; "
            "take a model of the same family, with the same tokenizer"
        )


def _cost_fit(counts: StepCounts, measured: MeasuredCost | None) -> StepCostFit:
    return StepCostFit(assumed_cost(counts) if measured is None else measured.cost, is_measured=measured is not None)


def size_kv(
    program: Program,
    limits: SchedulerConfig,
    *,
    precision: Precision,
    context: int | None,
    available_bytes: int,
    beside: Program | None = None,
    most_context: int | None = None,
) -> KVSize:
    """Room for as many sequences as a step may have, as far as the memory goes.

    `beside`: a model that reads the same tokens, so it gets its part of the memory by the bytes of a token.
    `most_context`: more is not needed, less is no error.
    """
    weight_bytes, part = packed_weight_bytes(program), 1.0
    if beside is not None:
        own, other = (token_bytes(each, precision=precision) for each in (program, beside))
        weight_bytes, part = weight_bytes + packed_weight_bytes(beside), own / (own + other)
    return plan_kv(
        program,
        precision=precision,
        block_size=BLOCK_SIZE,
        context=context,
        max_sequences=limits.max_rows,
        max_step_tokens=limits.max_step_tokens,
        available_bytes=available_bytes,
        weight_bytes=weight_bytes,
        part=part,
        most_context=most_context,
    )


def packed_weight_bytes(program: Program) -> int:
    """Memory the matrices take; vectors are too small to count."""
    return sum(matrix.num_bytes for matrix in packed_layout(program))


def _reader(
    source: ModelSource,
    program: Program,
    limits: SchedulerConfig,
    config: Config,
    *,
    kv: KVSpec,
    threads: int,
    pool: _native.Pool | None = None,
) -> NativeReader:
    """Weights packed, or mapped from where an earlier load left them."""
    return NativeReader(
        program,
        source.tensors,
        kv=kv,
        threads=threads,
        max_tokens=limits.max_step_tokens,
        max_rows=limits.max_rows,
        isa=config.isa,
        kept=packed_store(config).copy_of(source),
        pool=pool,
    )


def packed_store(config: Config) -> PackedStore:
    """Where packed weights stay from one load to the next."""
    return PackedStore(
        config.home / "packed", version=f"arithmetic {ARITHMETIC_VERSION}", limit_bytes=config.packed_bytes
    )


def load_text(source: ModelSource, *, home: Path, why_no_template: str | None = None) -> LoadedText:
    """Tokenizer, template and the ids an answer ends with; the built tokenizer is cached below `home`."""
    cache_directory = home / "tokenizers"
    if source.tokenizer_files is None:
        tokenizer = tokenizer_from_gguf(
            source.metadata, file=source.path, cache_directory=cache_directory, fingerprint=source.header_digest
        )
    else:
        files = source.tokenizer_files
        tokenizer = tokenizer_from_folder(
            files.tokenizer_json,
            files.tokenizer_config,
            eos_token_ids=source.eos_token_ids,
            cache_directory=cache_directory,
        )
    template = ChatTemplate(
        source.chat_template or known_template(tokenizer), tokenizer=tokenizer, why_none=why_no_template or NO_TEMPLATE
    )
    return LoadedText(tokenizer, template, template.end_ids() | frozenset(source.eos_token_ids))


def _closing_id(source: ModelSource, tokenizer: Tokenizer) -> int | None:
    """What the file wants behind a text that is embedded: its configuration decides, else its tokenizer."""
    files = source.tokenizer_files
    if files is None:
        wanted: object = source.metadata.boolean("tokenizer.ggml.add_eos_token", default=False)
    else:
        wanted = files.tokenizer_config.get("add_eos_token")
        if wanted is None:
            return closing_token(read_json_object(files.tokenizer_json))
    return tokenizer.eos_id if wanted else None


def _engine(own: _Own, *, clock: Clock, fit: StepCostFit, speculator: Speculator | None) -> Engine:
    program, size, limits, tokenizer, pooling = own.program, own.size, own.limits, own.text.tokenizer, own.pooling
    cache = _cache(own.source, program, size=size, isa=own.reader.isa)
    return Engine(
        reader=own.reader,
        scheduler=Scheduler(cache, limits, fit.cost()),
        cache=cache,
        binder=_binder(cache, program, limits, size=size, selects_all=pooling is not None),
        sampler=own.sampler,
        clock=clock,
        fit=fit,
        kv_size=size,
        kv_groups=program.kv_groups,
        new_text=lambda request: _detokenizer(request, tokenizer),
        speculator=speculator,
        pooler=None if pooling is None else Pooler(pooling.kind),
        candidates_from=FEWEST_ROWS if own.reader.brings_candidates else None,
        new_chooser=lambda request: BeamChooser(request, text_of=partial(_text_of, request, tokenizer)),
    )


def _cache(source: ModelSource, program: Program, *, size: KVSize, isa: str) -> KVCache:
    return KVCache(
        CacheConfig(
            block_size=size.spec.block_size,
            num_blocks=size.spec.num_blocks,
            windows=tuple(group.window for group in program.kv_groups),
            fingerprint=f"{source.fingerprint} {isa} {ARITHMETIC_VERSION}",
            precision=size.spec.precision,
        )
    )


def _binder(
    cache: KVCache, program: Program, limits: SchedulerConfig, *, size: KVSize, selects_all: bool = False
) -> Binder:
    return Binder(
        cache,
        num_groups=len(program.kv_groups),
        max_tokens=limits.max_step_tokens,
        max_rows=limits.max_rows,
        max_blocks=-(-size.context // size.spec.block_size) + 1,
        selects_all=selects_all,
    )


def _detokenizer(request: Request, tokenizer: Tokenizer) -> Detokenizer:
    return Detokenizer(tokenizer, is_continuation=request.continues_text, shown_ids=request.shown_ids)


def _text_of(request: Request, tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """An answer so far, without a character of which bytes are missing."""
    detokenizer = _detokenizer(request, tokenizer)
    return "".join([detokenizer.push(token_id) for token_id in token_ids])


def _step_counts(program: Program, cost: ProgramCost) -> StepCounts:
    """The counts a step's time depends on, read off made-up rows at depth 0, where no window hides anything."""
    silent, one = cost.step([Row(0, 1, needs_logits=False)]), cost.step([Row(0, 1)])
    deep = cost.step([Row(1, 1)])
    pair_ops = deep.total_flops - one.total_flops
    sizes = [len(group.layers) * group.num_kv_heads * group.head_dim for group in program.kv_groups]
    return StepCounts(
        weight_bytes=silent.weight_bytes,
        token_ops=silent.total_flops - pair_ops,
        head_bytes=one.weight_bytes - silent.weight_bytes,
        head_ops=one.total_flops - silent.total_flops,
        kv_bytes=deep.kv_bytes - one.kv_bytes,
        pair_ops=pair_ops,
        windows=tuple((group.window, size / sum(sizes)) for group, size in zip(program.kv_groups, sizes, strict=True)),
    )


def _cost_key(source: ModelSource, config: Config, *, precision: str, threads: int | None) -> CostKey:
    return CostKey(
        cpu=cpu_model(),
        cores=usable_cores(),
        isa=config.isa or _native.usable_isas()[0],
        threads=threads,
        build=hashlib.sha256(Path(_native.__file__).read_bytes()).hexdigest(),
        model=source.fingerprint,
        precision=precision,
    )


def default_context(program: Program, defaults: ModelDefaults) -> int | None:
    """The publisher's context where the model is able to keep it up; nobody asked for it now, so no error."""
    wish, most = defaults.context, program.context_length
    if wish is not None and wish > most:
        logger.warning("the model's own settings ask for a context of %d, it was made for %d: taking that", wish, most)
        return most
    return wish


def _lookup(speculate: str | None) -> NgramDrafter | None:
    if speculate is None:
        return None
    if speculate != "ngram":
        raise ConfigError(
            f"speculate is {speculate!r}: it must be 'ngram', drafts from the text itself, or left out",
            field="speculate",
        )
    return NgramDrafter()


def kv_precision(kv: str | None) -> Precision:
    if kv is None:
        return DEFAULT_PRECISION
    if kv not in get_args(Precision):
        raise ConfigError(f"kv is {kv!r}: it must be one of {', '.join(get_args(Precision))}", field="kv")
    return cast(Precision, kv)


def _threads(threads: int | None, config: Config) -> int:
    if threads is None:
        threads = config.threads
    if threads is None:
        return usable_cores()
    if type(threads) is not int or not 1 <= threads <= MAX_THREADS:
        raise ConfigError(f"threads is {threads!r}: it must be a whole number from 1 to {MAX_THREADS}", field="threads")
    if threads > (most := usable_cpus()):
        logger.warning(
            "%d threads are asked for, this process may use %d CPUs: threads that cannot run at the same time wait for "
            "each other and slow every step; take %d or fewer",
            threads,
            most,
            usable_cores(),
        )
    return threads
