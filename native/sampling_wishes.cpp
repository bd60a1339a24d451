#include "sampling_wishes.h"

#include <algorithm>
#include <iterator>

namespace twostroke {
namespace {

// float32 could not hold the quotient of a logit and a temperature outside these.
constexpr double kMinTemperature = 1e-30;
constexpr double kMaxTemperature = 1e30;

bool changes_logits(Stage stage) { return stage == Stage::penalties || stage == Stage::dry; }

std::vector<Stage> stages_in_use(const SamplingWishes& wishes) {
    std::vector<Stage> stages = wishes.order;
    if (stages.empty())
        for (size_t i = 0; i < kStageNames.size(); ++i) stages.push_back(static_cast<Stage>(i));
    std::erase_if(stages, [&](Stage stage) { return !wishes.has(stage); });
    return stages;
}

}  // namespace

bool SamplingWishes::has(Stage stage) const {
    switch (stage) {
        case Stage::penalties:
            return has_penalties();
        case Stage::dry:
            return has_dry();
        case Stage::temperature:
            return temperature != 1.0 || dynatemp_range > 0;
        case Stage::top_k:
            return top_k > 0;
        case Stage::top_p:
            return top_p < 1.0;
        case Stage::min_p:
            return min_p > 0;
        case Stage::typical_p:
            return typical_p < 1.0;
        case Stage::top_n_sigma:
            return top_n_sigma > 0;
        case Stage::xtc:
            return xtc_probability > 0;
    }
    return false;
}

float inverse_of_temperature(double temperature) {
    return static_cast<float>(1.0 / std::clamp(temperature, kMinTemperature, kMaxTemperature));
}

StagePlan plan_stages(const SamplingWishes& wishes) {
    const std::vector<Stage> stages = stages_in_use(wishes);
    StagePlan plan;
    if (wishes.temperature == 0) {  // filters leave the best
        std::copy_if(stages.begin(), stages.end(), std::back_inserter(plan.row), changes_logits);
        return plan;
    }
    const auto first = std::find_if_not(stages.begin(), stages.end(), changes_logits);
    plan.row.assign(stages.begin(), first);
    const bool is_usual = std::is_sorted(first, stages.end()) && wishes.dynatemp_range == 0 &&
                          !wishes.has_mirostat() && (first == stages.end() || stages.back() <= Stage::min_p);
    if (!is_usual) plan.chain.assign(first, stages.end());
    return plan;
}

}  // namespace twostroke
