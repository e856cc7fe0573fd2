// SPDX-License-Identifier: MIT
/// \file
/// The magnitudes of a step's tensors, operation by operation: how many values their types turn into zeros or
/// infinities, and which layers should have another type.
///
///     ht::tape tape{device, ht::watched};
///     {
///         ht::numerics_collector numerics{device, tape};     // counts what follows; the host waits for each tensor
///         ...                                                // one or several steps
///         const ht::numerics_view view = numerics.take(model, scaler.get_scale());
///         view.print(std::cout);
///         for (const auto& p : view.proposals()) std::cout << p.text << '\n';
///     }
///
/// Numeric contract: exact counts of the values as stored (gradients times the loss scale). For weights the wider
/// master is available, too, so that zeros made by rounding are known. For all other tensors the counts are of values
/// below the type's least normal number, where bits are lost, and of zeros, whatever their cause. 8-bit operands are
/// counted as the product reads them, scaled, and compared with the tensor that they were made from: how many numbers
/// became zero or saturated, and at which scale. observe/report/json.hpp and html.hpp write a view to files.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <halftone/kernel/exponent_counts/exponent_counts.hpp>
#include <halftone/memory/store.hpp>
#include <halftone/memory/weight_values.hpp>
#include <halftone/observe/numerics/proposals.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A listener that counts the values of every tensor of a watched tape by exponent. It waits for the device at each
/// tensor.
template <class Device>
class numerics_collector final : public tensor_listener {
  public:
    /// Observes the tape's tensors during its lifetime. Not inside of a step that is being captured.
    numerics_collector(Device& device, tape<Device, watched_tape>& watched_by_it)
        : device_(&device), tape_(&watched_by_it) {
        tape_->watch(*this);
    }
    template <class Kind, bool IsWatched = detail::check_watched<Kind>()>
    numerics_collector(Device&, tape<Device, Kind>&) = delete;
    ~numerics_collector() override { tape_->unwatch(*this); }

    /// Counts a tensor.
    void on_tensor(const watched_tensor& t) override {
        const auto [at, is_new] = numbers_.try_emplace(
            key{t.by, t.pass, t.role, t.parameter == nullptr ? "" : t.parameter, t.operand.tensor}, view_.rows.size());
        if (is_new) view_.rows.push_back({*t.by, t.pass, t.role, t.parameter == nullptr ? "" : t.parameter, t.format});
        numerics_row& row = view_.rows[at->second];
        if (row.is_operand()) {
            row.format = t.operand.format;
            detail::count_operand(*device_, t, row.operand, row.counts);
            row.underflowed = row.operand.flushed, row.overflowed = 0;
            return;
        }
        with_values(t, [&]<class V>(const V& values) { row.counts.add(statistics_of(*device_, values)); });
    }

    /// All counts so far, and the model's current weights; starts again from nothing.
    template <class Model>
    numerics_view take(const Model& model, float loss_scale = 1, std::int64_t step = 0) {
        numbers_.clear();
        numerics_view view = std::exchange(view_, {});
        view.loss_scale = loss_scale;
        view.step = step;
        const store& parameters = model.parameters();
        for (const store::entry& e : parameters.entries()) add_weight(view, parameters, e, signatures_of<Model>{});
        return view;
    }

  private:
    struct key {
        const watched_operation* by;
        halftone::pass pass;
        tensor_role role;
        std::string parameter;
        scaled_tensor operand;
        friend bool operator<(const key& a, const key& b) {
            return std::tie(a.by, a.pass, a.role, a.parameter, a.operand) <
                   std::tie(b.by, b.pass, b.role, b.parameter, b.operand);
        }
    };

    template <class... Storages>
    static void add_weight(numerics_view& view, const store& parameters, const store::entry& e, types<Storages...>) {
        const store::group& group = parameters.groups()[e.group];
        ((group.key == store::key_of<Storages>() ? add_weight_of<Storages>(view, parameters, group, e) : void()), ...);
    }
    /// The copy that kernels read, compared with the master that it was rounded from.
    template <class Storage>
    static void add_weight_of(numerics_view& view, const store& parameters, const store::group& group,
                              const store::entry& e) {
        using param = typename Storage::param;
        using compute = typename Storage::compute;
        if constexpr (detail::is_watchable<param> && detail::is_watchable<compute>) {
            const bool copied = group.copy_bytes != 0;
            if (group.param_bytes != sizeof(param)) return;  // split
            if (!parameters.is_here(e, 0, e.count)) return;
            numerics_row row{.by = {e.path.substr(0, e.path.rfind('.')), "", ""},
                             .pass = pass::update,
                             .parameter = e.path,
                             .format = value_format::of<compute>()};
            const std::vector<compute> read = detail::weight_values<Storage>(parameters, e);
            row.counts =
                detail::statistics_on_host(const_view<compute, 1>(read.data(), {static_cast<extent>(e.count)}));
            if (copied && e.master != store::nowhere) {
                std::vector<param> masters(e.count);
                parameters.memory().read(masters.data(), group.master.data() + e.master * sizeof(param),
                                         e.count * sizeof(param));
                row.underflowed = row.overflowed = 0;
                for (std::size_t i = 0; i < e.count; ++i) {
                    const float wide = static_cast<float>(masters[i]);
                    if (is_finite(wide) && wide != 0 && static_cast<float>(read[i]) == 0) ++row.underflowed;
                    const bool is_beyond = row.format->shows_overflow ? !is_finite(read[i])
                                                                      : std::fabs(static_cast<double>(wide)) > row.format->max;
                    if (is_finite(wide) && is_beyond) ++row.overflowed;
                }
            }
            view.rows.push_back(std::move(row));
        }
    }

    Device* device_;
    tape<Device, watched_tape>* tape_;
    std::map<key, std::size_t> numbers_;
    numerics_view view_;
};
template <class Device>
numerics_collector(Device&, tape<Device, watched_tape>&) -> numerics_collector<Device>;

}  // namespace HALFTONE_ABI
}  // namespace halftone
