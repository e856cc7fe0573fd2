// SPDX-License-Identifier: MIT
/// \file
/// What an operation that gave an infinity or a NaN (overflow.hpp) had read that was not finite already: an input of
/// the tape, or a weight.
///
///     if (o.weight.elements > 0) std::cout << o.weight.parameter << " has " << o.weight.found.nans << " NaN\n";
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <halftone/kernel/count_nonfinite/reference.hpp>
#include <halftone/memory/store.hpp>
#include <halftone/memory/weight_values.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// An input or weight that was not finite already.
struct overflow_source {
    std::string parameter{};  ///< for a weight: its path
    value_format format = value_format::float32;
    extent elements = 0;  ///< 0: there is none
    kernel::nonfinite_counts found{};
};

namespace detail {

/// "3 +inf, 2 NaN of 100"
inline std::string nonfinite_text(const kernel::nonfinite_counts& found, extent elements) {
    std::string t;
    if (found.positive_infinities > 0) t += std::to_string(found.positive_infinities) + " +inf, ";
    if (found.negative_infinities > 0) t += std::to_string(found.negative_infinities) + " -inf, ";
    if (found.nans > 0) t += std::to_string(found.nans) + " NaN, ";
    t.resize(t.size() - 2);
    return t + " of " + std::to_string(elements);
}
inline std::string source_text(const overflow_source& s) {
    return nonfinite_text(s.found, s.elements) + " values in " + name(s.format);
}

/// Examines a weight as kernels read it, and describes it if it is not finite.
template <class Storage>
overflow_source nonfinite_weight(const store& parameters, const store::entry& e) {
    using compute = typename Storage::compute;
    const store::group& group = parameters.groups()[e.group];
    if constexpr (is_watchable<compute>) {
        if (!parameters.is_here(e, 0, e.count)) return {};
        if (group.key != store::key_of<Storage>()) return {};
        const std::vector<compute> read = weight_values<Storage>(parameters, e);
        const auto count = static_cast<extent>(e.count);
        const auto found = reference::count_nonfinite(const_view<compute, 1>(read.data(), {count}));
        if (!found.is_finite()) return {e.path, value_format::of<compute>(), count, found};
    }
    return {};
}
/// The first whose path begins with the given one.
template <class... Storages>
overflow_source first_nonfinite_weight(const std::string& prefix, const store& parameters, types<Storages...>) {
    overflow_source source;
    for (const store::entry& e : parameters.entries()) {
        if (e.path.rfind(prefix, 0) != 0) continue;
        ((source = source.elements == 0 ? nonfinite_weight<Storages>(parameters, e) : source), ...);
        if (source.elements != 0) break;
    }
    return source;
}

/// Chooses the weight to report with a forward operation: one of its layer's, otherwise any of the model's, since a
/// tied head and free operations read other layers' weights. The whole model is read once.
template <class Model>
class nonfinite_weights {
  public:
    explicit nonfinite_weights(const Model& model) : parameters_(&model.parameters()) {}

    overflow_source read_by(const watched_operation& by) {
        if (by.after.empty() && !by.layer.empty()) {
            auto own = first_nonfinite_weight(by.layer + '.', *parameters_, signatures_of<Model>{});
            if (own.elements != 0) return own;
        }
        if (!any_) any_ = first_nonfinite_weight("", *parameters_, signatures_of<Model>{});
        return *any_;
    }

  private:
    const store* parameters_;
    std::optional<overflow_source> any_;
};

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
