// SPDX-License-Identifier: MIT
/// \file
/// Means of losses, computed on the device: on a GPU nothing waits until a mean is read, and a captured step adds its loss
/// in each replay.
///
///     ht::loss_meter losses{device};
///     for (...) {
///         for (const auto& micro : batch.split(4)) {
///             auto loss = model.loss(tape, micro) * ht::share_of(tape, micro, batch);
///             losses.add(loss);
///             ...
///         }
///         losses.end_step();                                     // the batch's loss is the step's
///     }
///     std::cout << losses.mean();                                // of the steps since restart(); waits
///
/// Windows of unequal size to measure with are a step like that:
///
///     losses.add(model.loss(eval, window) * ht::share_of(eval, window));
///
/// Losses with a share are weighted by what counts in their micro-batch, targets or their weights, also if it is 0; others by 1, or
/// by the weight that is given with them. If all weights are 0 the mean is NaN.
///
/// Numeric contract: sums in double, in the order of the calls.
#pragma once

#include <algorithm>
#include <vector>

#include <halftone/autodiff/engine/rank_loss.hpp>
#include <halftone/scale/device_value.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

struct loss_record {
    double part = 0;               ///< the weighted sum of the current step's losses
    double parts = 0;              ///< the sum of their weights: 1 each, or what counts in their micro-batches
    double sum = 0;                ///< the sum of the losses of steps since the restart
    std::int64_t steps = 0;        ///< the number of these steps
    std::int64_t all_steps = 0;
};

struct add_loss {
    loss_record* record;
    const float* loss;
    double weight;
    HALFTONE_HD void operator()() const {
        record->part += weight * static_cast<double>(*loss);
        record->parts += weight;
    }
};
struct add_shared_loss {
    loss_record* record;
    const float* loss;
    double factor;
    const kernel::target_counts* counts;
    HALFTONE_HD void operator()() const {
        if (counts->counted == 0) return;  // the loss is NaN
        record->part += factor * static_cast<double>(*loss) * counts->counted;
        record->parts += counts->counted;
    }
};
struct end_step {
    loss_record* record;
    double* latest;
    std::int64_t room;
    HALFTONE_HD void operator()() const {
        const double mean = record->part / record->parts;
        record->part = 0;
        record->parts = 0;
        record->sum += mean;
        ++record->steps;
        latest[record->all_steps++ % room] = mean;
    }
};
struct restart_losses {
    loss_record* record;
    HALFTONE_HD void operator()() const {
        record->sum = 0;
        record->steps = 0;
    }
};

}  // namespace detail

/// The state of a loss meter between two steps, for resuming a run.
struct loss_meter_state {
    double sum = 0;               ///< of the steps since the restart
    std::int64_t steps = 0;       ///< their number
    std::int64_t all_steps = 0;
    std::vector<double> latest{};  ///< the losses of the latest steps, oldest first

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("sum", self.sum), f("steps", self.steps), f("all_steps", self.all_steps), f("latest", self.latest);
    }
};

/// Sums the losses of steps on the device, so that the mean of many steps costs one wait. The device must outlive it.
template <class Device>
class loss_meter {
  public:
    /// Stores the losses of the last `latest` steps. Throws argument_error for 0.
    explicit loss_meter(Device& device, std::size_t latest = 1)
        : record_(device), room_(latest), latest_(device.memory(), latest * sizeof(double), memory_kind::other) {
        if (latest == 0) fail<argument_error>("loss_meter: remembers the losses of 0 steps; expected 1 or more");
    }

    /// Adds a loss to the current step: of micro-batches of unequal size, with its weight.
    void add(const variable<float, 0>& loss, double weight = 1) {
        if (weight != 0) record_.device().run(detail::add_loss{record_.data(), loss.view().data(), weight});
    }
    /// Adds a loss with its share of the step's batch. All losses of a step are of one kind.
    void add(const shared_loss<variable<float, 0>>& loss) {
        record_.device().run(detail::add_shared_loss{record_.data(), loss.loss.view().data(), loss.factor,
                                                     loss.share.on_device()});
    }
    /// Adds a loss with its share of the batch of several ranks.
    void add(const rank_loss<shared_loss<variable<float, 0>>>& loss) { add(loss.loss); }
    /// The losses of the current step, which several ranks add up (ranks/data_parallel.hpp). On a GPU it
    /// waits for the device.
    step_losses step() const {
        const detail::loss_record r = record_.read();
        return {r.part, r.parts};
    }
    /// Replaces them.
    void set_step(const step_losses& s) {
        detail::loss_record r = record_.read();
        r.part = s.sum;
        r.parts = s.weight;
        record_.write(r);
    }
    /// Ends a step: its loss is the mean of those that were added.
    void end_step() {
        record_.device().run(detail::end_step{record_.data(), latest(), static_cast<std::int64_t>(room_)});
    }
    /// Discards the losses of a step that ended with an exception.
    void discard() {
        detail::loss_record r = record_.read();
        r.part = 0;
        r.parts = 0;
        record_.write(r);
    }
    /// Excludes the steps so far from mean().
    void restart() { record_.device().run(detail::restart_losses{record_.data()}); }

    /// The state. Waits for the device.
    loss_meter_state state() const {
        const detail::loss_record r = record_.read();
        const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(room_), r.all_steps);
        std::vector<double> ring(room_), values;
        record_.device().memory().read(ring.data(), latest(), room_ * sizeof(double));
        for (std::int64_t i = r.all_steps - count; i < r.all_steps; ++i)
            values.push_back(ring[static_cast<std::size_t>(i) % room_]);
        return {r.sum, r.steps, r.all_steps, std::move(values)};
    }
    /// Restores a state, of a meter that stores more or fewer losses, too. Throws argument_error for negative counts.
    void load(const loss_meter_state& s) {
        if (s.steps < 0 || s.all_steps < s.steps || static_cast<std::int64_t>(s.latest.size()) > s.all_steps)
            fail<argument_error>("loss_meter: a state of ", s.steps, " steps of ", s.all_steps, " with ", s.latest.size(),
                                 " losses");
        std::vector<double> ring(room_);
        const auto count = static_cast<std::int64_t>(std::min(s.latest.size(), room_));
        for (std::int64_t i = 0; i < count; ++i)
            ring[static_cast<std::size_t>(s.all_steps - 1 - i) % room_] = s.latest[s.latest.size() - 1 - static_cast<std::size_t>(i)];
        record_.device().memory().write(latest_.data(), ring.data(), room_ * sizeof(double));
        record_.write({.sum = s.sum, .steps = s.steps, .all_steps = s.all_steps});
    }

    /// The mean of the steps since the restart; 0 if there are none. Waits for the device.
    double mean() const {
        const detail::loss_record r = record_.read();
        return r.steps == 0 ? 0 : r.sum / static_cast<double>(r.steps);
    }
    /// The last step's loss; 0 if there is none. Waits for the device.
    double last() const {
        const std::int64_t steps = record_.read().all_steps;
        double value = 0;
        if (steps != 0) {
            const auto at = static_cast<std::size_t>(steps - 1) % room_;
            record_.device().memory().read(&value, latest() + at, sizeof value);
        }
        return value;
    }
    /// The mean of the last `latest` steps; 0 if there are none. Waits for the device.
    double latest_mean() const {
        const auto count = std::min(room_, static_cast<std::size_t>(record_.read().all_steps));
        if (count == 0) return 0;
        std::vector<double> values(count);
        record_.device().memory().read(values.data(), latest(), count * sizeof(double));
        double sum = 0;
        for (const double value : values) sum += value;
        return sum / static_cast<double>(count);
    }

  private:
    double* latest() const { return reinterpret_cast<double*>(latest_.data()); }

    detail::device_value<detail::loss_record, Device> record_;
    std::size_t room_;
    buffer latest_;
};

template <class Device>
loss_meter(Device&) -> loss_meter<Device>;
template <class Device>
loss_meter(Device&, std::size_t) -> loss_meter<Device>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
