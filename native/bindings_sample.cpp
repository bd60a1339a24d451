// The sampler: every row of a step in one call without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
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

    nb::tuple sample(const LogitRows& logits, const nb::list& states) {
        const size_t num_rows = states.size();
        if (logits.shape(0) != num_rows || logits.shape(1) < static_cast<size_t>(vocab_size_) ||
            (logits.stride(1) != 1 && logits.shape(1) > 1 && num_rows > 0))
            throw nb::value_error(
                "logits must have a row per state, each contiguous and as long as the vocabulary");
        states_.resize(num_rows);
        for (size_t row = 0; row < num_rows; ++row) {
            if (!nb::isinstance<SamplingState>(states[row]))
                throw nb::type_error(("state " + std::to_string(row) + " is no SamplingState").c_str());
            states_[row] = nb::cast<const SamplingState*>(states[row]);
        }
        choices_.resize(num_rows);
        {
            nb::gil_scoped_release released;
            choose(logits.data(), logits.stride(0));
        }
        return to_python();
    }

  private:
    void choose(const float* logits, int64_t stride) {
        const int32_t num_rows = static_cast<int32_t>(states_.size());
        const auto choose_row = [&](RowSampler& sampler, int32_t row) {
            choices_[row] = sampler.sample(logits + row * stride, vocab_size_, *states_[row]);
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
        for (const SamplingState* state : states_)
            per_block += state->wishes().weighs_all() ? kPassesToWeigh : 1;
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
    std::vector<const SamplingState*> states_;
    std::vector<RowChoice> choices_;
};

}  // namespace

void bind_sample(nb::module_& m) {
    nb::class_<SamplingState>(m, "SamplingState")
        .def(
            "__init__",
            [](SamplingState* self, const std::vector<int32_t>& prompt_token_ids, uint64_t seed,
               uint32_t choice_index, double temperature, int32_t top_k, double top_p, double min_p,
               double repetition_penalty, double presence_penalty, double frequency_penalty,
               std::optional<int32_t> num_logprobs, const std::vector<std::pair<int32_t, float>>& logit_bias,
               std::vector<int32_t> late_ids, uint32_t num_late) {
                if (num_logprobs && *num_logprobs < 0)
                    throw nb::value_error("num_logprobs must not be negative");
                const SamplingWishes wishes{
                    temperature,       top_k,       top_p, min_p, repetition_penalty, presence_penalty,
                    frequency_penalty, num_logprobs};
                std::vector<TokenBias> biases;
                for (const auto& [id, bias] : logit_bias) biases.push_back({id, bias});
                LateTokens late{std::move(late_ids),
                                static_cast<uint32_t>(prompt_token_ids.size()) + num_late};
                new (self) SamplingState(wishes, seed, choice_index, prompt_token_ids, std::move(biases),
                                         std::move(late));
            },
            nb::arg("prompt_token_ids"), nb::kw_only(), nb::arg("seed"), nb::arg("choice_index"),
            nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"),
            nb::arg("repetition_penalty"), nb::arg("presence_penalty"), nb::arg("frequency_penalty"),
            nb::arg("num_logprobs").none(), nb::arg("logit_bias") = nb::make_tuple(),
            nb::arg("late_ids") = nb::make_tuple(), nb::arg("num_late") = 0)
        .def(
            "allow",
            [](SamplingState& self, const MaskWords& words) {
                self.allow({words.data(), words.data() + words.size()});
            },
            nb::arg("words").noconvert())
        .def("append", &SamplingState::append, nb::arg("token_id"))
        .def_rw("position", &SamplingState::position);
    nb::class_<Sampler>(m, "Sampler")
        .def(nb::init<int32_t, const std::string&, Pool*>(), nb::keep_alive<1, 4>(), nb::arg("vocab_size"),
             nb::kw_only(), nb::arg("isa"), nb::arg("pool").none())
        .def("sample", &Sampler::sample, nb::arg("logits").noconvert(), nb::arg("states"));
    m.def("log_of", &log_of, nb::arg("x"));
    m.def("gumbel", &gumbel, nb::arg("word"));
}

}  // namespace twostroke
