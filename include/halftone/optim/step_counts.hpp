// SPDX-License-Identifier: MIT
/// \file
/// Step counts of single parameters, for models of which some windows reach only a part. AdamW's bias corrections and
/// SGD's first momentum depend on them, as in torch.optim, where each parameter counts its steps.
///
///     optimizer.state().step_counts              // one for each parameter; empty if every window reached all
///
/// Parameters that were reached by the same windows form a step group with one count in the device's memory. Step group
/// 0 are those that every window reached; its count is the optimizer's. If a window reaches only a part of a step
/// group, the group is split; groups are never joined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <halftone/memory/capture_dependency.hpp>
#include <halftone/optim/groups.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The count of one step group.
struct step_group_record {
    kernel::step_record step{};
    std::int32_t is_made = 0;
};

enum class step_group_work { part, count };

/// Creates a step group, or counts its step, with one kernel on a GPU for both.
struct update_step_group {
    step_group_record* step_group;
    const kernel::step_record* from;  ///< the step group it is split from, or the optimizer's record
    step_group_work work;

    HALFTONE_HD void operator()() const {
        if (work == step_group_work::part) {
            if (step_group->is_made != 0) return;  // a captured graph repeats this kernel
            step_group->step = *from;
            step_group->is_made = 1;
        } else {
            const std::int64_t steps = step_group->step.steps + (from->skips == 0 ? 1 : 0);
            step_group->step = *from;
            step_group->step.steps = steps;
        }
    }
};

/// Captured work depends on which parameter belongs to which step group.
class step_counts final : public detail::capture_dependency {
  public:
    explicit step_counts(memory_resource& memory)
        : detail::capture_dependency(&memory.capture_dependencies(), "steps have reached other parameters than before"),
          memory_(&memory) {}

    /// Called before a step that reaches some of these parameters. `all` is the optimizer's record, before it counts
    /// the step.
    template <class Device>
    void divide(Device& device, std::vector<update_segment>& each, const std::vector<bool>& reached,
                const kernel::step_record* all) {
        const std::size_t before = made_;
        std::vector<std::size_t> parted(made_ + 1, 0);  // by step group: the new group for its parameters that are not reached
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
    /// Called after the optimizer's record has counted the step or been marked as skipped.
    template <class Device>
    void count(Device& device, const kernel::step_record* all) const {
        for (const std::size_t step_group : counting_)
            device.run(update_step_group{records() + (step_group - 1), all, step_group_work::count});
    }
    /// The record by which a step group's parameters are updated.
    const kernel::step_record* of(std::size_t step_group, const kernel::step_record* all) const {
        return step_group == 0 ? all : &records()[step_group - 1].step;
    }

    /// The step counts of all parameters; empty if all have the optimizer's. On a GPU it waits for the device.
    std::vector<std::int64_t> read(const std::vector<update_segment>& each, std::int64_t all) const;
    /// Restores counts; `steps` is empty or as long as `each`.
    void load(std::vector<update_segment>& each, const std::vector<std::int64_t>& steps, std::int64_t all);

  private:
    static bool has_reached(std::size_t step_group, const std::vector<update_segment>& each,
                            const std::vector<bool>& reached);
    /// Allocates as many records as there are parameters, the largest possible number of step groups, since no group
    /// but group 0 is ever empty.
    void take_memory(std::size_t parameters);
    step_group_record* records() const { return reinterpret_cast<step_group_record*>(memory_of_records_.data()); }

    memory_resource* memory_;
    buffer memory_of_records_;
    std::size_t made_ = 0;
    std::vector<std::size_t> counting_;  // step groups that the current step reaches, except 0
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/optim/step_counts.body.hpp>
#endif
