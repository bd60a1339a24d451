#include "pattern_program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
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
                               std::vector<PatternStep> steps, std::vector<Label> labels)
    : positions_(std::move(positions)),
      first_stages_(std::move(first_stages)),
      steps_(std::move(steps)),
      labels_(std::move(labels)) {
    int32_t last_stage = 0;
    for (const PatternStep& step : steps_) last_stage = std::max({last_stage, step.stage, step.next});
    num_stages_ = static_cast<uint32_t>(last_stage) + 1;
    check();
    std::vector<int32_t> all(labels_.size());
    std::iota(all.begin(), all.end(), 0);
    class_of_ = classes_of(all);
    num_classes_ = *std::max_element(class_of_.begin(), class_of_.end()) + 1;
    fill_next_stage();
    std::vector<std::vector<int32_t>> before(positions_.size());
    for (int32_t position = 0; position < static_cast<int32_t>(positions_.size()); ++position) {
        const auto& [kind, next, other] = positions_[position];
        if (kind != PatternPosition::kEnd) before[next].push_back(position);
        if (kind == PatternPosition::kFork) before[other].push_back(position);
    }
    for (std::vector<Kinds>& near : near_) near.resize(positions_.size());
    for (int32_t kind = 0; kind < static_cast<int32_t>(first_stages_.size()); ++kind) {
        kind_labels_.push_back(labels_of(kind));
        for (size_t trie = 0; trie < kNumTries; ++trie) find_near(kind, before, trie);
    }
    entered_.assign(positions_.size(), 0);
}

void PatternProgram::check() const {
    if (first_stages_.size() > kMostKinds)
        throw std::invalid_argument("the pattern has " + std::to_string(first_stages_.size()) +
                                    " kinds of characters: the limit is " + std::to_string(kMostKinds));
    check_index(0, positions_.size(), "the first position");
    for (const auto& [kind, next, other] : positions_) {
        if (kind >= 0) check_index(kind, first_stages_.size(), "a kind");
        if (kind < PatternPosition::kEnd) check_index(kind, 0, "a kind");
        if (kind != PatternPosition::kEnd) check_index(next, positions_.size(), "a position");
        if (kind == PatternPosition::kFork) check_index(other, positions_.size(), "a position");
    }
    for (const auto& [stage, label, next] : steps_) {
        check_index(stage, num_stages_, "a stage");
        check_index(label, labels_.size(), "a label");
        if (next != PatternStep::kTaken) check_index(next, num_stages_, "a stage");
    }
    for (const int32_t stage : first_stages_) check_index(stage, num_stages_, "a stage");
    if (positions_.size() > std::numeric_limits<uint32_t>::max() / num_stages_)
        throw std::invalid_argument(std::to_string(positions_.size()) + " positions with " +
                                    std::to_string(num_stages_) + " stages are too many to count");
}

ByteClasses PatternProgram::classes_of(const std::vector<int32_t>& labels) const {
    std::map<std::vector<bool>, uint8_t> numbers{{std::vector<bool>(labels.size()), kNoClass}};
    ByteClasses class_of{};
    std::vector<bool> within(labels.size());
    for (size_t byte = 0; byte < class_of.size(); ++byte) {
        for (size_t index = 0; index < labels.size(); ++index) within[index] = labels_[labels[index]][byte];
        class_of[byte] = numbers.try_emplace(within, static_cast<uint8_t>(numbers.size())).first->second;
    }
    if (numbers.size() > std::numeric_limits<uint8_t>::max())
        throw std::invalid_argument("labels tell " + std::to_string(numbers.size()) +
                                    " classes of bytes apart: those of characters cannot");
    return class_of;
}

ByteClasses PatternProgram::classes_of(const Kinds& kinds) const {
    std::vector<int32_t> labels;
    for (size_t kind = 0; kind < first_stages_.size(); ++kind)
        if (kinds[kind]) labels.insert(labels.end(), kind_labels_[kind].begin(), kind_labels_[kind].end());
    std::sort(labels.begin(), labels.end());
    labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
    return classes_of(labels);
}

void PatternProgram::fill_next_stage() {
    next_stage_.assign(size_t{num_stages_} * num_classes_, kNowhere);
    for (const auto& [stage, label, next] : steps_)
        for (size_t byte = 0; byte < class_of_.size(); ++byte)
            if (labels_[label][byte]) next_stage_[size_t(stage) * num_classes_ + class_of_[byte]] = next;
}

std::vector<int32_t> PatternProgram::labels_of(int32_t kind) const {
    std::vector<bool> seen(num_stages_);
    std::vector<int32_t> stages{first_stages_[kind]};
    seen[first_stages_[kind]] = true;
    std::vector<int32_t> labels;
    for (size_t at = 0; at < stages.size(); ++at)
        for (const auto& [stage, label, next] : steps_) {
            if (stage != stages[at]) continue;
            labels.push_back(label);
            if (next == PatternStep::kTaken || seen[next]) continue;
            seen[next] = true;
            stages.push_back(next);
        }
    return labels;
}

// Backwards from the positions of this kind, the nearest first; forks take no byte.
void PatternProgram::find_near(int32_t kind, const std::vector<std::vector<int32_t>>& before, size_t trie) {
    std::vector<Kinds>& near = near_[trie];
    std::vector<int32_t> level, farther;
    for (int32_t position = 0; position < static_cast<int32_t>(positions_.size()); ++position)
        if (positions_[position].kind == kind) level.push_back(position);
    for (size_t distance = 0; distance < kMostBytes[trie] && !level.empty(); ++distance) {
        farther.clear();
        while (!level.empty()) {
            const int32_t position = level.back();
            level.pop_back();
            if (near[position][kind]) continue;
            near[position][kind] = true;
            for (const int32_t earlier : before[position])
                (positions_[earlier].kind == PatternPosition::kFork ? level : farther).push_back(earlier);
        }
        std::swap(level, farther);
    }
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
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

void PatternProgram::enter(int32_t position, Places& places) {
    ahead_.push_back(position);
    while (!ahead_.empty()) {
        const int32_t entered = ahead_.back();
        ahead_.pop_back();
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

Kinds PatternProgram::near(const Places& places, size_t trie) const {
    Kinds kinds;
    for (const uint32_t each : places) kinds |= near_[trie][each / num_stages_];
    return kinds;
}

}  // namespace twostroke
