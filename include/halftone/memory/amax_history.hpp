// SPDX-License-Identifier: MIT
/// \file
/// The scales of tensors that are read in eight bits, and the history that delayed scaling (policy/scaling.hpp) keeps
/// of each, in the device's memory. A store has the histories of the layers whose weights it holds, three a layer: of
/// its input, its weight and its incoming gradient.
///
///     for (const ht::amax_state& s : model.parameters().amaxes().read()) ...       // part of what a checkpoint saves
///     model.parameters().amaxes().load(states);
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/resource.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/policy/model.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The factor by which a tensor was multiplied, and its inverse, which gives the values back.
struct tensor_scale {
    float scale = 1, inverse = 1;
};

/// Delayed scaling of one tensor. Magnitudes are stored as their bit patterns, which are ordered as the magnitudes are.
struct amax_record {
    tensor_scale now{};
    std::uint32_t amax = 0;  ///< of this window: the largest amax of the tensors that were finite
    std::int32_t next = 0;   ///< the place in the history where this window's amax will be written
    float largest = 0;       ///< the largest number of the format
    scaling_rule rule{};
    std::int64_t first = 0;  ///< index of its history's first element in the array of all histories
};

/// The tensors that a layer's products read in eight bits.
enum class scaled_tensor { input, weight, gradient };

/// "input", "weight" or "gradient".
constexpr const char* name(scaled_tensor t) {
    constexpr const char* names[] = {"input", "weight", "gradient"};
    return names[static_cast<int>(t)];
}

/// What a resumed run needs of a tensor's scaling, read between two windows.
struct amax_state {
    std::string path;            ///< path of the layer's weight
    scaled_tensor tensor{};
    float scale = 1;
    std::vector<float> history;  ///< amaxes of the windows, the latest last

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("path", self.path), f("tensor", self.tensor), f("scale", self.scale), f("history", self.history);
    }
};

/// The records of all tensors that the layers of one store read in eight bits under delayed scaling: three a layer,
/// each with a history of amaxes. Layers are added first; commit() then allocates the device's memory.
class amax_histories {
  public:
    /// Adds the records of a layer with policy P and operation Op, if its scaling is delayed. `entry` is the index of
    /// its weight in the store.
    template <class P, class Op>
    void add(std::size_t entry, const std::string& path) {
        if constexpr (detail::keeps_amaxes<P, Op>()) {
            using r = policy_within<P, as_given>;
            using grad = grad_type<r, Op>;
            constexpr float of_operand = static_cast<float>(number_traits<compute_type<r, Op>>::max);
            constexpr float of_gradient = eight_bit<grad> ? static_cast<float>(number_traits<grad>::max) : 0.0f;
            layers_.push_back({entry, path});
            for (const float largest : {of_operand, of_operand, of_gradient}) {
                amax_record r0{.largest = largest, .rule = scaling_of<r>::rule, .first = windows_};
                records_.push_back(r0);
                windows_ += r0.rule.history;
            }
        }
    }
    /// Allocates the device's memory.
    void commit(memory_resource& memory);

    /// The number of tensors.
    std::int64_t size() const { return static_cast<std::int64_t>(records_.size()); }
    /// The records, size() of them, in the device's memory.
    amax_record* records() const { return reinterpret_cast<amax_record*>(on_device_.data()); }
    /// The histories of all records, one after the other, in the device's memory: amaxes as their bit patterns.
    std::uint32_t* history() const { return reinterpret_cast<std::uint32_t*>(history_.data()); }
    /// The length of history(): the sum of the records' `rule.history`.
    std::int64_t windows() const { return windows_; }
    /// The record of a layer's tensor, in the device's memory. Throws state_error for a weight whose layer has no
    /// history.
    amax_record* record(std::size_t entry, scaled_tensor tensor) const;

    /// The states of all tensors, to be saved. On a GPU it waits for the device.
    std::vector<amax_state> read() const;
    /// The amaxes of the current window, as their bit patterns, which are ordered as they are. On a GPU it waits for the
    /// device.
    std::vector<std::uint32_t> window_amaxes() const;
    /// Sets them, size() of them. On a GPU it waits for the device.
    void set_window_amaxes(const std::vector<std::uint32_t>& amaxes);
    /// Discards the amaxes of the current window. On a GPU it waits for the device.
    void forget();
    /// Restores saved states. Throws argument_error, and changes nothing, if they are of other layers or of histories
    /// of another length, or if a scale or an amax in them is not valid. Throws state_error before the store's commit.
    void load(const std::vector<amax_state>& states);

  private:
    /// None before commit().
    std::vector<amax_record> read_records() const;
    /// The place of window w in the history; window 0 is the earliest.
    static std::size_t place(const amax_record& r, int w) {
        return static_cast<std::size_t>(r.first + (r.next + w) % r.rule.history);
    }

    struct layer_entry {
        std::size_t entry;
        std::string path;
    };
    memory_resource* memory_ = nullptr;
    std::vector<layer_entry> layers_;
    std::vector<amax_record> records_;  // as they are before the first window
    std::int64_t windows_ = 0;
    buffer on_device_, history_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/amax_history.body.hpp>
#endif
