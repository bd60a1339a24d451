#include "pattern_program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace twostroke {
namespace {

void check_index(int32_t index, size_t size, const char* name) {
    if (index < 0 || static_cast<size_t>(index) >= size)
        throw std::invalid_argument(std::string(name) + " is " + std::to_string(index) + ", of " +
                                    std::to_string(size));
}

}  // namespace

PatternProgram::PatternProgram(std::vector<PatternPosition> positions, std::vector<int32_t> first_stages,
                               const std::vector<PatternStep>& steps, const std::vector<Label>& labels)
    : positions_(std::move(positions)), first_stages_(std::move(first_stages)), entered_(positions_.size()) {
    int32_t last_stage = 0;
    for (const PatternStep& step : steps) last_stage = std::max({last_stage, step.stage, step.next});
    num_stages_ = static_cast<uint32_t>(last_stage) + 1;
    check(steps, labels.size());
    find_classes(labels);
    next_stage_.assign(size_t{num_stages_} * num_classes_, kNowhere);
    for (const auto& [stage, label, next] : steps)
        for (size_t byte = 0; byte < class_of_.size(); ++byte)
            if (labels[label][byte]) next_stage_[size_t(stage) * num_classes_ + class_of_[byte]] = next;
}

void PatternProgram::check(const std::vector<PatternStep>& steps, size_t num_labels) const {
    check_index(0, positions_.size(), "the first position");
    for (const auto& [kind, next, other] : positions_) {
        if (kind >= 0) check_index(kind, first_stages_.size(), "a kind");
        if (kind < PatternPosition::kEnd) check_index(kind, 0, "a kind");
        if (kind != PatternPosition::kEnd) check_index(next, positions_.size(), "a position");
        if (kind == PatternPosition::kFork) check_index(other, positions_.size(), "a position");
    }
    for (const auto& [stage, label, next] : steps) {
        check_index(stage, num_stages_, "a stage");
        check_index(label, num_labels, "a label");
        if (next != PatternStep::kTaken) check_index(next, num_stages_, "a stage");
    }
    for (const int32_t stage : first_stages_) check_index(stage, num_stages_, "a stage");
    if (positions_.size() > std::numeric_limits<uint32_t>::max() / num_stages_)
        throw std::invalid_argument(std::to_string(positions_.size()) + " positions with " +
                                    std::to_string(num_stages_) + " stages are too many to count");
}

void PatternProgram::find_classes(const std::vector<Label>& labels) {
    std::map<std::vector<bool>, uint8_t> numbers{{std::vector<bool>(labels.size()), kNoClass}};
    std::vector<bool> within(labels.size());
    for (size_t byte = 0; byte < class_of_.size(); ++byte) {
        for (size_t label = 0; label < labels.size(); ++label) within[label] = labels[label][byte];
        class_of_[byte] = numbers.try_emplace(within, static_cast<uint8_t>(numbers.size())).first->second;
    }
    if (numbers.size() > std::numeric_limits<uint8_t>::max())
        throw std::invalid_argument("labels tell " + std::to_string(numbers.size()) +
                                    " classes of bytes apart: those of characters cannot");
    num_classes_ = static_cast<uint32_t>(numbers.size());
}

Places PatternProgram::start() {
    Places places;
    ++turn_;
    enter(0, places);
    std::sort(places.begin(), places.end());
    return places;
}

Places PatternProgram::behind(const Places& places, uint8_t byte_class) {
    Places found;
    ++turn_;
    work_ += places.size() + 1;
    for (const uint32_t each : places) {
        const uint32_t position = each / num_stages_;
        if (positions_[position].kind == PatternPosition::kEnd) continue;
        const int32_t next = next_stage_[size_t{each % num_stages_} * num_classes_ + byte_class];
        if (next == PatternStep::kTaken)
            enter(positions_[position].next, found);
        else if (next != kNowhere)
            found.push_back(place(static_cast<int32_t>(position), next));
    }
    std::sort(found.begin(), found.end());
    return found;
}

void PatternProgram::enter(int32_t position, Places& places) {
    ahead_.push_back(position);
    while (!ahead_.empty()) {
        const int32_t entered = ahead_.back();
        ahead_.pop_back();
        ++work_;
        if (entered_[entered] == turn_) continue;
        entered_[entered] = turn_;
        const auto& [kind, next, other] = positions_[entered];
        if (kind == PatternPosition::kFork)
            ahead_.insert(ahead_.end(), {other, next});
        else
            places.push_back(place(entered, kind == PatternPosition::kEnd ? 0 : first_stages_[kind]));
    }
}

bool PatternProgram::ends(const Places& places) const {
    return std::any_of(places.begin(), places.end(), [&](uint32_t each) {
        return positions_[each / num_stages_].kind == PatternPosition::kEnd;
    });
}

}  // namespace twostroke
