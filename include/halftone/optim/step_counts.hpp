// SPDX-License-Identifier: MIT
/// \file
/// How many steps each parameter has taken, where windows reach some of a model's parameters and not others. Bias
/// corrections of AdamW and the first momentum of SGD follow from it, as in torch.optim, whose parameters count their
/// own steps.
///
///     optimizer.state().step_counts              // of each parameter; empty where every window reached all of them
///
/// Parameters that the same windows reached have one count, in the device's memory: step_group 0 are those that missed
/// none, whose count is the optimizer's. A step group of which a window reaches a part divides, and step groups never join.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <halftone/memory/capture_dependency.hpp>
#include <halftone/optim/groups.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The count of one step_group.
struct step_group_record {
    kernel::step_record step{};
    std::int32_t is_made = 0;
};

enum class step_group_work { part, count };

/// One kernel on a GPU for both.
struct update_step_group {
    step_group_record* step_group;
    const kernel::step_record* from;  ///< the step_group that it parts from, or the optimizer's, which has counted the step
    step_group_work work;

    HALFTONE_HD void operator()() const {
        if (work == step_group_work::part) {
            if (step_group->is_made != 0) return;  // a capture repeats it
            step_group->step = *from;
            step_group->is_made = 1;
        } else {
            const std::int64_t steps = step_group->step.steps + (from->skips == 0 ? 1 : 0);
            step_group->step = *from;
            step_group->step.steps = steps;
        }
    }
};

/// Captured work relies on who belongs to which step_group.
class step_counts final : public detail::capture_dependency {
  public:
    explicit step_counts(memory_resource& memory)
        : detail::capture_dependency(&memory.capture_dependencies(), "steps have reached other parameters than before"),
          memory_(&memory) {}

    /// Before a step that reaches some of these parameters. `all` is the optimizer's record, before it counts the step.
    template <class Device>
    void divide(Device& device, std::vector<update_segment>& each, const std::vector<bool>& reached,
                const kernel::step_record* all) {
        const std::size_t before = made_;
        std::vector<std::size_t> parted(made_ + 1, 0);  // of each step_group: where its parameters go that are not reached
        for (std::size_t i = 0; i < each.size(); ++i) {
            const std::size_t step_group = each[i].step_group;
            if (reached[i]) continue;
            if (parted[step_group] == 0) {
                if (step_group != 0 && !has_reached(step_group, each, reached)) continue;
                take_memory(each.size());
                parted[step_group] = made_ + 1;
                device.run(update_step_group{records() + made_, of(step_group, all), step_group_work::part});
                ++made_;
            }
            each[i].step_group = parted[step_group];
        }
        counting_.clear();
        for (std::size_t step_group = 1; step_group <= made_; ++step_group) {
            if (has_reached(step_group, each, reached)) counting_.push_back(step_group);
        }
        if (made_ != before) change();
    }
    /// After the optimizer's record has counted the step, or found that it is skipped.
    template <class Device>
    void count(Device& device, const kernel::step_record* all) const {
        for (const std::size_t step_group : counting_)
            device.run(update_step_group{records() + (step_group - 1), all, step_group_work::count});
    }
    /// What a step group's parameters are updated by.
    const kernel::step_record* of(std::size_t step_group, const kernel::step_record* all) const {
        return step_group == 0 ? all : &records()[step_group - 1].step;
    }

    /// The steps of each parameter; none where all have the optimizer's. On a GPU it waits for the device.
    std::vector<std::int64_t> read(const std::vector<update_segment>& each, std::int64_t all) const {
        if (made_ == 0) return {};
        std::vector<step_group_record> now(made_);
        memory_->read(now.data(), records(), made_ * sizeof(step_group_record));
        std::vector<std::int64_t> steps;
        for (const update_segment& s : each) steps.push_back(s.step_group == 0 ? all : now[s.step_group - 1].step.steps);
        return steps;
    }
    /// The reverse, where `steps` is empty or as long as `each`.
    void load(std::vector<update_segment>& each, const std::vector<std::int64_t>& steps, std::int64_t all) {
        std::vector<step_group_record> now;
        for (std::size_t i = 0; i < each.size(); ++i) {
            each[i].step_group = 0;
            if (steps.empty() || steps[i] == all) continue;
            const auto is_it = [&](const step_group_record& r) { return r.step.steps == steps[i]; };
            const auto found = std::find_if(now.begin(), now.end(), is_it);
            each[i].step_group = static_cast<std::size_t>(found - now.begin()) + 1;
            if (found == now.end()) now.push_back({{.steps = steps[i]}, 1});
        }
        const std::size_t before = std::exchange(made_, now.size());
        if (before == 0 && now.empty()) return;
        take_memory(each.size());
        now.resize(each.size());
        memory_->write(memory_of_records_.data(), now.data(), memory_of_records_.bytes());
        counting_.clear();
        change();
    }

  private:
    static bool has_reached(std::size_t step_group, const std::vector<update_segment>& each,
                            const std::vector<bool>& reached) {
        for (std::size_t i = 0; i < each.size(); ++i) {
            if (reached[i] && each[i].step_group == step_group) return true;
        }
        return false;
    }
    /// No more step groups than parameters, since none is ever empty but that of those which missed nothing.
    void take_memory(std::size_t parameters) {
        if (memory_of_records_.bytes() != 0) return;
        memory_of_records_ = buffer(*memory_, parameters * sizeof(step_group_record), memory_kind::other);
        memory_->clear(memory_of_records_.data(), memory_of_records_.bytes());
    }
    step_group_record* records() const { return reinterpret_cast<step_group_record*>(memory_of_records_.data()); }

    memory_resource* memory_;
    buffer memory_of_records_;
    std::size_t made_ = 0;
    std::vector<std::size_t> counting_;  // step groups that the step under way reaches, but 0
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
