// SPDX-License-Identifier: MIT
/// \file
/// Skips a step whose gradient norm or loss is an outlier, that is, far above those of the latest steps. Only active if
/// a program makes one.
///
///     ht::outlier_guard guard{device, {.factor = 6}};
///     auto grads = scaler.unscale(acc.take());
///     guard.watch(grads);                              // before clipping
///     ht::clip_grad_norm(grads, 1.0f);
///     optimizer.step(grads);                           // result() is step_result::outlier if it was one
///
///     guard.add(loss);                                 // with .of = ht::outlier_of::both: each loss, before watch()
///
/// The rule is that of OLMo-core's SkipStepOptimizer (Team OLMo 2025): an outlier is more than `factor` standard
/// deviations from the mean of the latest `window` values, once there are `warm_up` of them. Differences: only values
/// above the mean are outliers; the window holds only steps that were not skipped, so that one spike does not hide the
/// next; and since a permanent change of level would then be skipped forever, the window is cleared after
/// `most_in_a_row` consecutive outliers.
///
/// Everything is decided and counted on the device, also in a captured step. The loss scale is not affected: an outlier
/// neither backs it off nor stops its growth. Steps with an overflow are not judged.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <halftone/autodiff/engine/rank_loss.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/scale/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The values that are watched.
enum class outlier_of {
    norm,  ///< the norm of all gradients of a window, unscaled
    loss,  ///< the mean of the losses passed to add(); one that is not finite is always an outlier
    both,  ///< both; a step is an outlier if either is
};

/// The rule for outliers.
struct outlier_options {
    double factor = 6;               ///< standard deviations above the mean
    int window = 128;                ///< the number of latest steps, outliers excluded
    int warm_up = 64;                ///< steps that are not outliers before any is judged
    double least_deviation = 0.01;   ///< lower limit of the standard deviation, as a fraction of the mean
    int most_in_a_row = 16;          ///< consecutive outliers after which the window is cleared
    outlier_of of = outlier_of::norm;
};

/// The state, for resuming a run: the window, oldest first, and counters.
struct outlier_state {
    std::vector<float> norms, losses;  ///< one of each for each step; 0 if not watched
    int in_a_row = 0;
    std::int64_t outliers = 0;

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("norms", self.norms), f("losses", self.losses), f("in_a_row", self.in_a_row), f("outliers", self.outliers);
    }
};

namespace detail {

struct guard_record {
    outlier_options options{};
    std::int32_t count = 0, next = 0;  ///< number of values in the window, and the index of the next one
    std::int32_t in_a_row = 0;
    std::int32_t losses = 0;           ///< number of losses of the current step
    double weight = 0;                 ///< their total weight: 1 each, or the number of targets that count
    double loss_sum = 0;
    std::int64_t outliers = 0;
};

struct add_watched_loss {
    guard_record* record;
    const float* loss;
    double weight;
    HALFTONE_HD void operator()() const {
        record->loss_sum += weight * static_cast<double>(*loss);
        record->weight += weight;
        ++record->losses;
    }
};

struct add_watched_share {
    guard_record* record;
    const float* loss;
    double factor;
    const kernel::target_counts* counts;
    HALFTONE_HD void operator()() const {
        ++record->losses;
        if (counts->counted == 0) return;  // the loss is NaN
        record->loss_sum += factor * static_cast<double>(*loss) * counts->counted;
        record->weight += counts->counted;
    }
};

struct drop_watched_losses {
    guard_record* record;
    HALFTONE_HD void operator()() const {
        record->loss_sum = record->weight = 0;
        record->losses = 0;
    }
};

struct judge_step {
    guard_record* record;
    float* norms;
    float* losses;
    kernel::gradient_record* gradients;

    HALFTONE_HD static bool is_above(const guard_record& r, const float* values, double value) {
        double sum = 0, squares = 0;
        for (std::int32_t i = 0; i < r.count; ++i) sum += static_cast<double>(values[i]);
        const double mean = sum / r.count;
        for (std::int32_t i = 0; i < r.count; ++i) {
            const double away = static_cast<double>(values[i]) - mean;
            squares += away * away;
        }
        const double deviation = std::sqrt(squares / (r.count > 1 ? r.count - 1 : 1));
        const double least = r.options.least_deviation * (mean < 0 ? -mean : mean);
        return value > mean + r.options.factor * (deviation > least ? deviation : least);
    }

    HALFTONE_HD void operator()() const {
        guard_record& r = *record;
        const outlier_of of = r.options.of;
        const float norm = gradients->norm;
        const auto loss = static_cast<float>(r.losses == 0 ? 0 : r.loss_sum / r.weight);
        r.loss_sum = r.weight = 0;
        r.losses = 0;
        if (gradients->found_inf != 0) return;

        const bool is_broken = of != outlier_of::norm && !is_finite(loss);
        const bool is_judged = r.count >= r.options.warm_up && !is_broken;
        const bool is_far = is_judged && ((of != outlier_of::loss && is_above(r, norms, static_cast<double>(norm))) ||
                                          (of != outlier_of::norm && is_above(r, losses, static_cast<double>(loss))));
        if (is_far && r.in_a_row >= r.options.most_in_a_row) {
            r.count = r.next = 0;
        } else if (is_far || is_broken) {
            gradients->outlier = 1;
            ++r.in_a_row;
            ++r.outliers;
            return;
        }
        if (of != outlier_of::loss && norm > kernel::largest_with_square) return;  // too large for a mean of squares
        r.in_a_row = 0;
        norms[r.next] = of == outlier_of::loss ? 0.0f : norm;
        losses[r.next] = of == outlier_of::norm ? 0.0f : loss;
        r.next = r.next + 1 == r.options.window ? 0 : r.next + 1;
        if (r.count < r.options.window) ++r.count;
    }
};

}  // namespace detail

/// Judges the loss, the gradients' norm or both before each step, and makes the optimizers skip those far above the
/// latest ones. It judges on the device and does not wait for it. The device must outlive the guard.
template <class Device>
class outlier_guard {
  public:
    /// Throws argument_error for options outside their ranges.
    explicit outlier_guard(Device& device, const outlier_options& options = {})
        : options_((check(options), options)), record_(device, detail::guard_record{.options = options}),
          values_(device.memory(), 2 * static_cast<std::size_t>(options.window) * sizeof(float), memory_kind::other) {
        device.memory().clear(values_.data(), values_.bytes());
    }
    outlier_guard(const outlier_guard&) = delete;
    outlier_guard& operator=(const outlier_guard&) = delete;

    /// Adds a loss of the current step, unscaled: of micro-batches of unequal size, with its weight. Throws state_error if losses
    /// are not watched.
    void add(const variable<float, 0>& loss, double weight = 1) {
        if (options_.of == outlier_of::norm)
            fail<state_error>("outlier_guard: add() of a loss, and .of = outlier_of::norm watches none");
        ++added_;
        if (weight != 0) record_.device().run(detail::add_watched_loss{record_.data(), loss.view().data(), weight});
    }
    /// Adds a loss with its share of the step's batch. All losses of a step are of one kind.
    void add(const shared_loss<variable<float, 0>>& loss) {
        if (options_.of == outlier_of::norm)
            fail<state_error>("outlier_guard: add() of a loss, and .of = outlier_of::norm watches none");
        ++added_;
        record_.device().run(detail::add_watched_share{record_.data(), loss.loss.view().data(), loss.factor,
                                                       loss.share.on_device()});
    }

    /// The losses of the current step, which several ranks add up (ranks/data_parallel.hpp). On a GPU it
    /// waits for the device.
    step_losses step() const {
        const detail::guard_record r = record_.read();
        return {r.loss_sum, r.weight};
    }
    /// Replaces them.
    void set_step(const step_losses& s) {
        detail::guard_record r = record_.read();
        r.loss_sum = s.sum;
        r.weight = s.weight;
        record_.write(r);
    }

    /// Takes the loss of a share of the batch of several ranks.
    void add(const rank_loss<shared_loss<variable<float, 0>>>& loss) { add(loss.loss); }

    /// Discards the losses of a step that ended with an exception.
    void discard() {
        added_ = 0;
        record_.device().run(detail::drop_watched_losses{record_.data()});
    }

    /// Judges the step for which these gradients are; every optimizer that steps with them skips an outlier. Throws
    /// state_error after a clip or a step with them, for gradients that were watched before, and if losses are watched
    /// and none was added.
    template <class Any, class Models>
    void watch(gradients<Any, Models>& g) {
        static_assert(std::is_void_v<Any> || std::is_same_v<Any, Device>,
                      "halftone: outlier_guard: these gradients were unscaled on another kind of device");
        detail::window& w = g.check("outlier_guard");
        if (w.is_clipped)
            fail<state_error>("outlier_guard: watch() after clipping, which hides outliers; watch first");
        for (const detail::window::part& p : w.parts) {
            if (p.stepped)
                fail<state_error>("outlier_guard: watch() after a step with these gradients; watch before all steps");
        }
        if (watched_ == w.clock && serial_ == w.clock->serial)
            fail<state_error>("outlier_guard: watch() was called twice with the same gradients");
        if (options_.of != outlier_of::norm && added_ == 0) {
            fail<state_error>(
                "outlier_guard: losses are watched and this step has none; call add(loss) before watch()");
        }
        g.measure(record_.device());
        record_.device().run(detail::judge_step{record_.data(), norms(), losses(), w.record()});
        watched_ = w.clock;
        serial_ = w.clock->serial;
        added_ = 0;
    }

    /// The number of outliers so far. On a GPU it waits for the device.
    std::int64_t outliers() const { return record_.read().outliers; }
    const outlier_options& options() const { return options_; }

    /// The window and counters, for a checkpoint. On a GPU it waits for the device.
    outlier_state state() const {
        const detail::guard_record r = record_.read();
        outlier_state s{{}, {}, r.in_a_row, r.outliers};
        for (const auto& [to, from] : {std::pair{&s.norms, norms()}, std::pair{&s.losses, losses()}}) {
            to->resize(static_cast<std::size_t>(r.count));
            record_.device().memory().read(to->data(), from, to->size() * sizeof(float));
            if (r.count == options_.window) std::rotate(to->begin(), to->begin() + r.next, to->end());
        }
        return s;
    }
    /// Restores a state; from a longer window the latest values. Throws argument_error for an invalid state.
    void load(const outlier_state& s) {
        const auto is_nonfinite = [](float v) { return !is_finite(v); };
        if (s.norms.size() != s.losses.size() || s.in_a_row < 0 || s.outliers < 0 ||
            std::any_of(s.norms.begin(), s.norms.end(), is_nonfinite) ||
            std::any_of(s.losses.begin(), s.losses.end(), is_nonfinite)) {
            fail<argument_error>("outlier_guard: a state with ", s.norms.size(), " norms, ", s.losses.size(),
                                 " losses, ", s.in_a_row, " outliers in a row of ", s.outliers,
                                 "; expected as many norms as losses, all finite, and no negative count");
        }
        const std::size_t kept = std::min(s.norms.size(), static_cast<std::size_t>(options_.window));
        const auto take = [&](float* to, const std::vector<float>& from) {
            record_.device().memory().write(to, from.data() + (from.size() - kept), kept * sizeof(float));
        };
        take(norms(), s.norms), take(losses(), s.losses);
        const auto count = static_cast<std::int32_t>(kept);
        record_.write({.options = options_,
                       .count = count,
                       .next = count == options_.window ? 0 : count,
                       .in_a_row = s.in_a_row,
                       .outliers = s.outliers});
        added_ = 0;
    }

    /// Calls f(data, bytes) for the device's memory of the window and the counters, which a step changes.
    template <class F>
    void visit_memory(const F& f) const {
        f(reinterpret_cast<std::byte*>(record_.data()), sizeof(detail::guard_record));
        f(values_.data(), values_.bytes());
    }

  private:
    static void check(const outlier_options& o) {
        if (!(o.factor > 0 && is_finite(o.factor)))
            fail<argument_error>("outlier_guard: factor is ", o.factor, "; expected more than 0");
        if (o.window < 2) fail<argument_error>("outlier_guard: a window of ", o.window, "; expected 2 or more");
        if (o.warm_up < 2 || o.warm_up > o.window) {
            fail<argument_error>("outlier_guard: warm_up is ", o.warm_up, "; expected 2 to the window, ", o.window);
        }
        if (!(o.least_deviation >= 0 && is_finite(o.least_deviation))) {
            fail<argument_error>("outlier_guard: least_deviation is ", o.least_deviation, "; expected 0 or more");
        }
        if (o.most_in_a_row < 1)
            fail<argument_error>("outlier_guard: most_in_a_row is ", o.most_in_a_row, "; expected 1 or more");
    }
    float* norms() const { return reinterpret_cast<float*>(values_.data()); }
    float* losses() const { return norms() + options_.window; }

    outlier_options options_;
    detail::device_value<detail::guard_record, Device> record_;
    buffer values_;  ///< the window's norms, then its losses
    std::shared_ptr<const detail::window_clock> watched_;
    std::uint64_t serial_ = 0;
    int added_ = 0;
};

template <class Device>
outlier_guard(Device&) -> outlier_guard<Device>;
template <class Device>
outlier_guard(Device&, const outlier_options&) -> outlier_guard<Device>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
