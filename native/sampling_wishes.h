// What a request wishes of the sampler: the fields of params.py that choose a token, checked there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace twostroke {

// What a chain of samplers is made of; their usual order is this one.
enum class Stage : uint8_t {
    penalties,
    dry,
    temperature,
    top_k,
    top_p,
    min_p,
    typical_p,
    top_n_sigma,
    xtc,
};
inline constexpr std::array<std::string_view, 9> kStageNames = {
    "penalties", "dry", "temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc"};

inline std::optional<Stage> stage_named(std::string_view name) {
    for (size_t i = 0; i < kStageNames.size(); ++i)
        if (kStageNames[i] == name) return static_cast<Stage>(i);
    return std::nullopt;
}

// Every number is one that changes nothing, unless it is set. A `last_n` of -1 is all tokens.
struct DryWishes {
    double multiplier = 0;
    double base = 1.75;
    int32_t allowed_length = 2;
    int32_t last_n = -1;
};

struct SamplingWishes {
    double temperature;
    int32_t top_k;  // 0: off
    double top_p;
    double min_p;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    std::optional<int32_t> num_logprobs;  // best alternatives to report beside the token; none: no report
    int32_t penalty_last_n = -1;
    double typical_p = 1;
    double top_n_sigma = 0;
    double dynatemp_range = 0;
    double dynatemp_exponent = 1;
    double xtc_probability = 0;
    double xtc_threshold = 0.1;
    double mirostat_tau = 0;  // 0: off
    double mirostat_eta = 0.1;
    DryWishes dry{};
    int32_t no_repeat_ngram_size = 0;
    std::vector<Stage> order;  // empty: the usual one

    bool has_penalties() const {
        const bool is_on = repetition_penalty != 1.0 || presence_penalty != 0.0 || frequency_penalty != 0.0;
        return is_on && penalty_last_n != 0;
    }
    bool has_dry() const { return dry.multiplier > 0 && dry.last_n != 0; }
    bool has_mirostat() const { return mirostat_tau > 0; }
    bool has(Stage stage) const;
    // Whether the usual way needs a weight or noise of every token.
    bool weighs_all() const {
        const bool is_cut = temperature == 0 || top_k > 0 || (top_p == 1.0 && min_p > 0.0);
        return !is_cut || num_logprobs.has_value();
    }
};

// 1/T; beyond some bounds a temperature acts like the limit it tends to.
float inverse_of_temperature(double temperature);

// What is done to the logits of the whole row, and then to the tokens that may be drawn.
struct StagePlan {
    std::vector<Stage> row;    // penalties and dry, where no filter comes before them
    std::vector<Stage> chain;  // empty where temperature, top-k, top-p and min-p come in their usual order
};
StagePlan plan_stages(const SamplingWishes& wishes);

}  // namespace twostroke
