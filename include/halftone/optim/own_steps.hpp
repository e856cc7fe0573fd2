// SPDX-License-Identifier: MIT
/// \file
/// How many steps each parameter has taken, where windows reach some of a model's parameters and not others. Bias
/// corrections of AdamW and the first momentum of SGD follow from it, as in torch.optim, whose parameters count their
/// own steps.
///
///     optimizer.state().own_steps              // of each parameter; empty where every window reached all of them
///
/// Parameters that the same windows reached have one count, in the device's memory: cohort 0 are those that missed
/// none, whose count is the optimizer's. A cohort of which a window reaches a part divides, and cohorts never join.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <halftone/memory/fixture.hpp>
#include <halftone/optim/groups.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The count of one cohort.
struct cohort_record {
    kernel::step_record step{};
    std::int32_t is_made = 0;
};

enum class cohort_work { part, count };

/// One kernel on a GPU for both.
struct update_cohort {
    cohort_record* cohort;
    const kernel::step_record* from;  ///< the cohort that it parts from, or the optimizer's, which has counted the step
    cohort_work work;

    HALFTONE_HD void operator()() const {
        if (work == cohort_work::part) {
            if (cohort->is_made != 0) return;  // a capture repeats it
            cohort->step = *from;
            cohort->is_made = 1;
        } else {
            const std::int64_t steps = cohort->step.steps + (from->skips == 0 ? 1 : 0);
            cohort->step = *from;
            cohort->step.steps = steps;
        }
    }
};

/// Captured work relies on who belongs to which cohort.
class own_steps final : public detail::fixture {
  public:
    explicit own_steps(memory_resource& memory)
        : detail::fixture(&memory.fixtures(), "steps have reached other parameters than before"), memory_(&memory) {}

    /// Before a step that reaches some of these parameters. `all` is the optimizer's record, before it counts the step.
    template <class Device>
    void divide(Device& device, std::vector<update_segment>& each, const std::vector<bool>& reached,
                const kernel::step_record* all) {
        const std::size_t before = made_;
        std::vector<std::size_t> parted(made_ + 1, 0);  // of each cohort: where its parameters go that are not reached
        for (std::size_t i = 0; i < each.size(); ++i) {
            const std::size_t cohort = each[i].cohort;
            if (reached[i]) continue;
            if (parted[cohort] == 0) {
                if (cohort != 0 && !has_reached(cohort, each, reached)) continue;
                take_memory(each.size());
                parted[cohort] = made_ + 1;
                device.run(update_cohort{records() + made_, of(cohort, all), cohort_work::part});
                ++made_;
            }
            each[i].cohort = parted[cohort];
        }
        counting_.clear();
        for (std::size_t cohort = 1; cohort <= made_; ++cohort) {
            if (has_reached(cohort, each, reached)) counting_.push_back(cohort);
        }
        if (made_ != before) change();
    }
    /// After the optimizer's record has counted the step, or found that it is skipped.
    template <class Device>
    void count(Device& device, const kernel::step_record* all) const {
        for (const std::size_t cohort : counting_)
            device.run(update_cohort{records() + (cohort - 1), all, cohort_work::count});
    }
    /// What a cohort's parameters are updated by.
    const kernel::step_record* of(std::size_t cohort, const kernel::step_record* all) const {
        return cohort == 0 ? all : &records()[cohort - 1].step;
    }

    /// The steps of each parameter; none where all have the optimizer's. On a GPU it waits for the device.
    std::vector<std::int64_t> read(const std::vector<update_segment>& each, std::int64_t all) const {
        if (made_ == 0) return {};
        std::vector<cohort_record> now(made_);
        memory_->read(now.data(), records(), made_ * sizeof(cohort_record));
        std::vector<std::int64_t> steps;
        for (const update_segment& s : each) steps.push_back(s.cohort == 0 ? all : now[s.cohort - 1].step.steps);
        return steps;
    }
    /// The reverse, where `steps` is empty or as long as `each`.
    void load(std::vector<update_segment>& each, const std::vector<std::int64_t>& steps, std::int64_t all) {
        std::vector<cohort_record> now;
        for (std::size_t i = 0; i < each.size(); ++i) {
            each[i].cohort = 0;
            if (steps.empty() || steps[i] == all) continue;
            const auto is_it = [&](const cohort_record& r) { return r.step.steps == steps[i]; };
            const auto found = std::find_if(now.begin(), now.end(), is_it);
            each[i].cohort = static_cast<std::size_t>(found - now.begin()) + 1;
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
    static bool has_reached(std::size_t cohort, const std::vector<update_segment>& each,
                            const std::vector<bool>& reached) {
        for (std::size_t i = 0; i < each.size(); ++i) {
            if (reached[i] && each[i].cohort == cohort) return true;
        }
        return false;
    }
    /// No more cohorts than parameters, since none is ever empty but that of those which missed nothing.
    void take_memory(std::size_t parameters) {
        if (memory_of_records_.bytes() != 0) return;
        memory_of_records_ = buffer(*memory_, parameters * sizeof(cohort_record), memory_kind::other);
        memory_->clear(memory_of_records_.data(), memory_of_records_.bytes());
    }
    cohort_record* records() const { return reinterpret_cast<cohort_record*>(memory_of_records_.data()); }

    memory_resource* memory_;
    buffer memory_of_records_;
    std::size_t made_ = 0;
    std::vector<std::size_t> counting_;  // cohorts that the step under way reaches, but 0
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
