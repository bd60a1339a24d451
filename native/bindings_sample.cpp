// The sampler: every row of a step in one call without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "candidates.h"
#include "cpu.h"
#include "float_state.h"
#include "pool.h"
#include "sample_noise.h"
#include "sample_row.h"

namespace nb = nanobind;

namespace twostroke {
namespace {

using MaskWords = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using LogitRows = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;

const SampleKernels& kernels_named(const std::string& isa) {
    const KernelTable* kernels = find_kernels(isa);
    if (kernels == nullptr)
        throw nb::value_error(("this machine has no kernels for ISA '" + isa + "'").c_str());
    return *kernels->sample;
}

std::vector<Stage> stages_of(const std::vector<std::string>& names) {
    std::vector<Stage> stages;
    for (const std::string& name : names) {
        const std::optional<Stage> stage = stage_named(name);
        if (!stage || std::find(stages.begin(), stages.end(), *stage) != stages.end())
            throw nb::value_error(("order has '" + name + "', which is unknown or there twice").c_str());
        stages.push_back(*stage);
    }
    return stages;
}

void check_sequences(const std::vector<TokenIds>& sequences, const char* name) {
    for (const TokenIds& sequence : sequences)
        if (sequence.empty()) throw nb::value_error((std::string(name) + " has an empty sequence").c_str());
}

// Passes over blocks of logits, of 5 ns each, that are worth waking other threads for: 150 us, as a thread
// that the system is slow to bring back costs as much.
constexpr int64_t kWorthSharing = 30000;
constexpr int64_t kPassesToWeigh = 8;  // exp or noise of a block takes as long as eight looks for its maximum

// Working memory of each thread, and the threads where there are any to share.
class Sampler {
  public:
    Sampler(int32_t vocab_size, const std::string& isa, Pool* pool)
        : vocab_size_(vocab_size),
          pool_(pool),
          samplers_(pool == nullptr ? 1 : pool->num_threads(), RowSampler(kernels_named(isa))) {
        if (vocab_size < 1 || vocab_size > kMaxVocab)
            throw nb::value_error(("vocab_size is " + std::to_string(vocab_size) + ": it must be from 1 to " +
                                   std::to_string(kMaxVocab))
                                      .c_str());
    }

    // Each state draws from the row of logits named in `at`, or all of them in turn; of rows that do not want
    // all their logits, from its candidates.
    nb::tuple sample(const LogitRows& logits, const nb::list& states,
                     const std::optional<std::vector<size_t>>& at, const Candidates* candidates) {
        const size_t num_rows = states.size();
        const size_t num_sources = candidates != nullptr ? candidates->num_rows() : logits.shape(0);
        if ((at ? at->size() : num_sources) != num_rows ||
            logits.shape(1) < static_cast<size_t>(vocab_size_) ||
            (logits.stride(1) != 1 && logits.shape(1) > 1 && logits.shape(0) > 0))
            throw nb::value_error(
                "logits must have a row per state, each contiguous and as long as the vocabulary");
        if (candidates != nullptr && candidates->vocab_size() != vocab_size_)
            throw nb::value_error("candidates must be of the vocabulary of the sampler");
        states_.resize(num_rows);
        rows_.resize(num_rows);
        for (size_t row = 0; row < num_rows; ++row) {
            if (!nb::isinstance<SamplingState>(states[row]))
                throw nb::type_error(("state " + std::to_string(row) + " is no SamplingState").c_str());
            states_[row] = nb::cast<SamplingState*>(states[row]);
            const size_t source = at ? (*at)[row] : row;
            const auto index = static_cast<int32_t>(source);
            const bool has_candidates =
                candidates != nullptr && source < num_sources && !candidates->wants_all(index);
            if (source >= (has_candidates ? num_sources : logits.shape(0)))
                throw nb::index_error(("state " + std::to_string(row) + " draws from row " +
                                       std::to_string(source) + " of " + std::to_string(logits.shape(0)))
                                          .c_str());
            rows_[row] = has_candidates
                             ? LogitRow{nullptr, candidates, index}
                             : LogitRow{logits.data() + static_cast<int64_t>(source) * logits.stride(0)};
        }
        choices_.resize(num_rows);
        {
            nb::gil_scoped_release released;
            choose();
            for (size_t row = 0; row < num_rows; ++row)
                if (choices_[row].surprise) states_[row]->expect(*choices_[row].surprise);
        }
        return to_python();
    }

  private:
    void choose() {
        const int32_t num_rows = static_cast<int32_t>(states_.size());
        const auto choose_row = [&](RowSampler& sampler, int32_t row) {
            choices_[row] = sampler.sample(rows_[row], vocab_size_, *states_[row]);
        };
        if (pool_ == nullptr || num_rows == 1 || num_passes() < kWorthSharing) {
            const FloatState float_state(Denormals::kept);
            for (int32_t row = 0; row < num_rows; ++row) choose_row(samplers_[0], row);
            return;
        }
        pool_->run([&](Worker& worker) {
            const FloatState float_state(Denormals::kept);
            worker.for_each(num_rows, [&](int32_t row) { choose_row(samplers_[worker.index()], row); });
        });
    }

    int64_t num_passes() const {
        int64_t per_block = 0;
        for (size_t row = 0; row < states_.size(); ++row)
            if (rows_[row].candidates == nullptr)
                per_block += states_[row]->weighs_all() ? kPassesToWeigh : 1;
        return per_block * (vocab_size_ / kLogitBlock);
    }

    nb::tuple to_python() const {
        nb::list token_ids, broken, reports;
        for (size_t row = 0; row < choices_.size(); ++row) {
            const RowChoice& choice = choices_[row];
            token_ids.append(choice.token_id);
            if (choice.broken) broken.append(nb::make_tuple(row, *choice.broken));
            if (!choice.report) continue;
            nb::list best;
            for (const TokenLogprob& token : choice.report->best)
                best.append(nb::make_tuple(token.token_id, token.logprob));
            reports.append(nb::make_tuple(row, choice.report->logprob, best));
        }
        return nb::make_tuple(token_ids, broken, reports);
    }

    const int32_t vocab_size_;
    Pool* const pool_;
    std::vector<RowSampler> samplers_;
    std::vector<SamplingState*> states_;
    std::vector<LogitRow> rows_;
    std::vector<RowChoice> choices_;
};

// One state per row draws from what its row will bring; none: all its logits are wanted. Returns of how many
// rows they are not.
int32_t plan_candidates(Candidates& candidates, const nb::list& given) {
    std::vector<const SamplingState*> states;
    for (const nb::handle state : given) {
        if (!state.is_none() && !nb::isinstance<SamplingState>(state))
            throw nb::type_error("states must be SamplingState or None");
        states.push_back(state.is_none() ? nullptr : nb::cast<const SamplingState*>(state));
    }
    TokenIds changed, scratch;
    int32_t num_planned = 0;
    candidates.begin(static_cast<int32_t>(states.size()));
    for (int32_t row = 0; row < candidates.num_rows(); ++row) {
        const int32_t num_enough = states[row] == nullptr ? 0 : states[row]->num_enough();
        if (num_enough < 1 || num_enough > candidates.most()) continue;
        candidates.want(row, num_enough, states[row]->allowed());
        changed.clear();
        states[row]->add_changed(changed, scratch);
        for (const int32_t id : changed) candidates.watch(row, id);
        if (states[row]->raises_logits()) candidates.keep_watched(row);
        ++num_planned;
    }
    candidates.make_room();
    return num_planned;
}

void check_row(const Candidates& candidates, int32_t row) {
    if (row < 0 || row >= candidates.num_rows())
        throw nb::index_error(
            ("row " + std::to_string(row) + " of " + std::to_string(candidates.num_rows())).c_str());
}

void bind_candidates(nb::module_& m) {
    using Tile = nb::ndarray<const float, nb::shape<-1, kPanelRows>, nb::c_contig, nb::device::cpu>;
    nb::class_<Candidates>(m, "Candidates")
        .def(
            "__init__",
            [](Candidates* self, int32_t vocab_size, int32_t num_threads) {
                if (vocab_size < 1 || vocab_size > kMaxVocab || num_threads < 1)
                    throw nb::value_error("candidates need a vocabulary and a thread");
                new (self) Candidates(vocab_size, num_threads);
            },
            nb::arg("vocab_size"), nb::kw_only(), nb::arg("num_threads"))
        .def("plan", &plan_candidates, nb::arg("states"))
        // As the head's threads hand a panel on, for its tests.
        .def(
            "take",
            [](Candidates& self, const Tile& tile, int32_t panel, int32_t first_row, int worker,
               const std::string& isa) {
                const auto num_rows = static_cast<int32_t>(tile.shape(0));
                if (panel < 0 || first_row < 0 || num_rows > self.num_rows() - first_row || worker < 0 ||
                    worker >= self.num_threads())
                    throw nb::index_error("no such panel, rows or thread");
                self.take(kernels_named(isa), worker, panel, first_row, num_rows, tile.data());
            },
            nb::arg("tile").noconvert(), nb::kw_only(), nb::arg("panel"), nb::arg("first_row") = 0,
            nb::arg("worker") = 0, nb::arg("isa"))
        .def(
            "wants_all",
            [](const Candidates& self, int32_t row) {
                check_row(self, row);
                return self.wants_all(row);
            },
            nb::arg("row"))
        .def(
            "top",
            [](const Candidates& self, int32_t row) {
                check_row(self, row);
                return self.top(row);
            },
            nb::arg("row"))
        .def(
            "found",
            [](const Candidates& self, int32_t row) {
                check_row(self, row);
                std::vector<Candidates::FoundPanel> found;
                self.find(row, found);
                std::vector<std::pair<int32_t, std::vector<float>>> panels;
                for (const Candidates::FoundPanel& panel : found)
                    panels.emplace_back(
                        panel.number(),
                        std::vector<float>(panel.logits, panel.logits + self.width(panel.number())));
                return panels;
            },
            nb::arg("row"))
        .def_prop_ro("num_rows", &Candidates::num_rows)
        .def_prop_ro("num_whole", [](const Candidates& self) { return self.whole_rows().size(); })
        .def_prop_ro("memory_bytes", &Candidates::memory_bytes);
}

}  // namespace

void bind_sample(nb::module_& m) {
    bind_candidates(m);
    nb::class_<SamplingState>(m, "SamplingState")
        .def(
            "__init__",
            [](SamplingState* self, const TokenIds& prompt_token_ids, uint64_t seed, uint32_t choice_index,
               double temperature, int32_t top_k, double top_p, double min_p, double repetition_penalty,
               double presence_penalty, double frequency_penalty, std::optional<int32_t> num_logprobs,
               const std::vector<std::pair<int32_t, float>>& logit_bias, TokenIds late_ids, uint32_t num_late,
               int32_t penalty_last_n, double typical_p, double top_n_sigma, double dynatemp_range,
               double dynatemp_exponent, double xtc_probability, double xtc_threshold, double mirostat_tau,
               double mirostat_eta, double dry_multiplier, double dry_base, int32_t dry_allowed_length,
               int32_t dry_penalty_last_n, const std::vector<TokenIds>& dry_breakers,
               int32_t no_repeat_ngram_size, std::vector<TokenIds> bad_words,
               const std::vector<std::string>& order) {
                if (num_logprobs && *num_logprobs < 0)
                    throw nb::value_error("num_logprobs must not be negative");
                const SamplingWishes wishes{
                    .temperature = temperature,
                    .top_k = top_k,
                    .top_p = top_p,
                    .min_p = min_p,
                    .repetition_penalty = repetition_penalty,
                    .presence_penalty = presence_penalty,
                    .frequency_penalty = frequency_penalty,
                    .num_logprobs = num_logprobs,
                    .penalty_last_n = penalty_last_n,
                    .typical_p = typical_p,
                    .top_n_sigma = top_n_sigma,
                    .dynatemp_range = dynatemp_range,
                    .dynatemp_exponent = dynatemp_exponent,
                    .xtc_probability = xtc_probability,
                    .xtc_threshold = xtc_threshold,
                    .mirostat_tau = mirostat_tau,
                    .mirostat_eta = mirostat_eta,
                    .dry = {dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n},
                    .no_repeat_ngram_size = no_repeat_ngram_size,
                    .order = stages_of(order)};
                check_sequences(bad_words, "bad_words");
                check_sequences(dry_breakers, "dry_breakers");
                std::vector<TokenBias> biases;
                for (const auto& [id, bias] : logit_bias) biases.push_back({id, bias});
                LateTokens late{std::move(late_ids),
                                static_cast<uint32_t>(prompt_token_ids.size()) + num_late};
                new (self) SamplingState(wishes, seed, choice_index, prompt_token_ids, std::move(biases),
                                         std::move(late), TokenHistory(std::move(bad_words), dry_breakers));
            },
            nb::arg("prompt_token_ids"), nb::kw_only(), nb::arg("seed"), nb::arg("choice_index"),
            nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"),
            nb::arg("repetition_penalty"), nb::arg("presence_penalty"), nb::arg("frequency_penalty"),
            nb::arg("num_logprobs").none(), nb::arg("logit_bias") = nb::make_tuple(),
            nb::arg("late_ids") = nb::make_tuple(), nb::arg("num_late") = 0, nb::arg("penalty_last_n") = -1,
            nb::arg("typical_p") = 1.0, nb::arg("top_n_sigma") = 0.0, nb::arg("dynatemp_range") = 0.0,
            nb::arg("dynatemp_exponent") = 1.0, nb::arg("xtc_probability") = 0.0,
            nb::arg("xtc_threshold") = 0.1, nb::arg("mirostat_tau") = 0.0, nb::arg("mirostat_eta") = 0.1,
            nb::arg("dry_multiplier") = 0.0, nb::arg("dry_base") = 1.75, nb::arg("dry_allowed_length") = 2,
            nb::arg("dry_penalty_last_n") = -1, nb::arg("dry_breakers") = nb::make_tuple(),
            nb::arg("no_repeat_ngram_size") = 0, nb::arg("bad_words") = nb::make_tuple(),
            nb::arg("order") = nb::make_tuple())
        .def(
            "allow",
            [](SamplingState& self, const MaskWords& words) {
                self.allow({words.data(), words.data() + words.size()});
            },
            nb::arg("words").noconvert())
        .def("append", &SamplingState::append, nb::arg("token_id"))
        .def_prop_ro("surprise_limit", &SamplingState::surprise_limit)
        .def_rw("position", &SamplingState::position);
    nb::class_<Sampler>(m, "Sampler")
        .def(nb::init<int32_t, const std::string&, Pool*>(), nb::keep_alive<1, 4>(), nb::arg("vocab_size"),
             nb::kw_only(), nb::arg("isa"), nb::arg("pool").none())
        .def("sample", &Sampler::sample, nb::arg("logits").noconvert(), nb::arg("states"),
             nb::arg("at") = nb::none(), nb::arg("candidates") = nb::none());
    m.def("log_of", &log_of, nb::arg("x"));
    m.def("gumbel", &gumbel, nb::arg("word"));
}

}  // namespace twostroke
