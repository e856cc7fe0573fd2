// SPDX-License-Identifier: MIT
/// \file
/// The gradients of one window of micro-batches for an optimizer: the result of `acc.take()`, unscaled by a scaler.
///
/// An object of this type refers to the accumulator's memory, in which the values stay as the backward passes left
/// them; unscaling and clipping only record factors, which the optimizer applies as it reads. It is valid until the
/// next window begins or the accumulator is destroyed.
///
/// On a CPU the products that compute gradients of weights, and the embedding's gradient, sum the squares as they store
/// them (memory/square_sum.hpp): the norm then needs a pass over the small parameters only.
///
///     ht::gradients<cpu, ...> grads = scaler.unscale(acc.take());
///     ht::clip_grad_norm(grads, 1.0f);
///     optimizer.step(grads);
///
/// They are read by kernels of the device: include <halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <halftone/kernel/gradient_norm/gradient_norm.hpp>
#include <halftone/memory/gradient_slabs.hpp>
#include <halftone/scale/device_value.hpp>
#include <halftone/scale/exact_sum.hpp>
#include <halftone/scale/scaled.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Counts windows. Everything that refers to a window shares its clock, which outlives the accumulator.
struct window_clock {
    std::uint64_t serial = 0;
    bool is_gone = false;  ///< whether the accumulator has been destroyed
};

/// What an accumulator and its gradients share: the slabs of each store, and the state of the window.
struct window {
    struct part {
        gradient_slabs slabs;
        bool stepped = false;  ///< whether an optimizer has used it
    };
    /// Which parts of the record in the device's memory are valid.
    enum class knowledge { nothing, factors, finite, norm };

    std::vector<part> parts;
    buffer record_memory;  ///< a gradient_record, then a part_record and found_inf of each part
    scale_stamp stamp{};
    std::shared_ptr<window_clock> clock = std::make_shared<window_clock>();
    int received = 0;  ///< micro-batches in the current window, or in the last one
    bool is_open = false;
    bool is_clipped = false;  ///< whether clipped, by norm or value
    bool is_narrow = false;   ///< whether gradients passed through a type with a short exponent range
    knowledge known = knowledge::nothing;

    kernel::gradient_record* record() const { return reinterpret_cast<kernel::gradient_record*>(record_memory.data()); }
    kernel::part_record* part_records() const {
        return reinterpret_cast<kernel::part_record*>(record_memory.data() + sizeof(kernel::gradient_record));
    }
    std::int32_t* found_inf() const { return reinterpret_cast<std::int32_t*>(part_records() + parts.size()); }
    static std::size_t record_bytes(std::size_t parts) {
        return sizeof(kernel::gradient_record) + parts * (sizeof(kernel::part_record) + sizeof(std::int32_t));
    }
    static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
    std::size_t find(const store& owner) const;
};

struct reset_record {
    kernel::gradient_record* record;
    std::int32_t* found_inf;
    std::size_t parts;
    HALFTONE_HD void operator()() const {
        *record = {};
        for (std::size_t i = 0; i < parts; ++i) found_inf[i] = 0;
    }
};
struct begin_pass {
    kernel::gradient_record* record;
    HALFTONE_HD void operator()() const { kernel::begin_pass(*record); }
};
struct end_part {
    const kernel::gradient_record* record;
    kernel::part_record* parts;
    std::int64_t index;
    HALFTONE_HD void operator()() const { kernel::end_part(*record, parts, index); }
};
struct add_measured {
    kernel::gradient_record* record;
    std::int32_t* found_inf;
    double squares;
    std::int32_t found;
    HALFTONE_HD void operator()() const { kernel::add_slab(*record, *found_inf, squares, found); }
};
/// Ends the pass and its last part.
struct end_pass {
    kernel::gradient_record* record;
    kernel::part_record* parts;
    std::int64_t last;
    HALFTONE_HD void operator()() const {
        kernel::end_part(*record, parts, last);
        kernel::end_pass(*record);
    }
};

}  // namespace detail

/// `Device` is that of the scaler that unscaled the gradients, or void if they come from an accumulator with
/// ht::unscaled. `Models` is a types<...> of the models whose parameters they belong to.
template <class Device, class Models>
class gradients {
  public:
    using device_type = Device;
    using models = Models;

    gradients(detail::window& window, Device* device)
        : window_(&window), clock_(window.clock), serial_(window.clock->serial), device_(device) {}
    gradients(gradients&& other) noexcept
        : window_(std::exchange(other.window_, nullptr)),
          clock_(std::move(other.clock_)),
          serial_(other.serial_),
          device_(other.device_) {}
    gradients& operator=(gradients&& other) noexcept {
        window_ = std::exchange(other.window_, nullptr);
        clock_ = std::move(other.clock_);
        serial_ = other.serial_;
        device_ = other.device_;
        return *this;
    }

    /// The number of micro-batches that were added.
    int micro_batches() const { return check("gradients").received; }
    /// The values as stored, still scaled. Throws argument_error for a store of another model.
    const gradient_slabs& slabs(const store& owner) const {
        const detail::window& w = check("gradients");
        const std::size_t part = w.find(owner);
        if (part == detail::window::nowhere) fail<argument_error>("gradients: they belong to other models' parameters");
        return w.parts[part].slabs;
    }

    /// The gradient of one parameter as stored, still scaled, in the parameter's shape. Throws argument_error for a
    /// parameter of another model, state_error for a frozen one.
    template <class Storage, int Rank>
    const_view<typename Storage::accumulate, Rank> of(const parameter<Storage, Rank>& p) const {
        return slabs(p.owner()).of(p);
    }
    /// The rows of a sparse gradient as stored in the device's memory, still scaled; throws as of() does.
    template <class Storage, int Rank>
    gradient_rows<typename Storage::accumulate> rows(const parameter<Storage, Rank>& p) const {
        return slabs(p.owner()).rows(p);
    }
    /// The rows of a sparse gradient, still scaled, copied into host memory. On a GPU it waits for the device.
    template <class Storage, int Rank>
    host_rows<typename Storage::accumulate> read_rows(const parameter<Storage, Rank>& p) const {
        return slabs(p.owner()).read_rows(p);
    }

    /// The window, for code that reads or changes it. Throws state_error if another window has begun since, if the
    /// accumulator has been destroyed, and if this object was moved from.
    detail::window& check(const char* operation) const {
        if (window_ == nullptr) fail<state_error>(operation, ": these gradients were moved from");
        if (clock_->is_gone)
            fail<state_error>(operation, ": the accumulator of these gradients has been destroyed, and their memory with it");
        if (clock_->serial != serial_) {
            fail<state_error>(operation,
                              ": a further backward pass has reused the memory of these gradients; use them before it");
        }
        return *window_;
    }
    Device* device() const { return device_; }

    /// Says that values were changed through views: the next clip or step computes norm and finiteness again. A value
    /// that is not finite then skips the step, but does not affect the loss scale, which unscale() has judged already.
    void changed() {
        detail::window& w = check("gradients");
        if (w.known != detail::window::knowledge::nothing) w.known = detail::window::knowledge::factors;
        for (detail::window::part& p : w.parts) p.slabs.forget_squares();
    }

    /// Initialises the record, with the factors of unscaled gradients, unless it is valid already.
    template <class Any>
    void prepare(Any& device) const {
        detail::window& w = *window_;
        if (w.known != detail::window::knowledge::nothing) return;
        device.run(detail::reset_record{w.record(), w.found_inf(), w.parts.size()});
        w.known = detail::window::knowledge::factors;
    }
    /// Runs the read pass, unless the norm is known. On a CPU it skips gradients whose squares were summed as they were
    /// written, if the loss scale is the only factor.
    template <class Any>
    void measure(Any& device) const {
        prepare(device);
        detail::window& w = *window_;
        if (w.known == detail::window::knowledge::norm) return;
        device.run(detail::begin_pass{w.record()});
        measure_models(device, Models{});
        device.run(detail::end_pass{w.record(), w.part_records(), static_cast<std::int64_t>(w.parts.size()) - 1});
        w.known = detail::window::knowledge::norm;
    }

    /// Runs the read pass, unless it is known already whether every gradient is finite.
    template <class Any>
    void inspect(Any& device) const {
        if (window_->known < detail::window::knowledge::finite) measure(device);
    }

  private:
    /// Whether a device's read pass can use sums of squares that were computed before.
    template <class Any>
    static constexpr bool takes_sums = requires(Any& device, const square_sum& squares, kernel::gradient_record* record,
                                                std::int32_t* found_inf) {
        kernel::gradient_norm<Any>::add(device, squares, record, found_inf);
    };

    template <class Any, class... Ms>
    void measure_models(Any& device, types<Ms...>) const {
        std::size_t part = 0;
        const auto measure = [&](auto signatures) {
            if (!measure_ranks(device, part, signatures)) measure_groups(device, part, signatures);
            if (++part == sizeof...(Ms)) return;
            device.run(detail::end_part{window_->record(), window_->part_records(), static_cast<std::int64_t>(part) - 1});
        };
        (measure(signatures_of<Ms>{}), ...);
    }
    /// Measures gradients that several ranks have added, with bits that do not depend on how they are divided among ranks
    /// (scale/exact_sum.hpp); false for any others. On a GPU the host waits and reads them.
    template <class Any, class... Storages>
    bool measure_ranks(Any& device, std::size_t part, types<Storages...>) const {
        const gradient_slabs& slabs = window_->parts[part].slabs;
        detail::store_sharding* const sharding = slabs.owner().sharding();
        if (sharding == nullptr && !slabs.are_of_ranks()) return false;
        detail::found_squares found;
        if (slabs.owner().memory().has_contents()) {
            const auto factors = detail::read_value(device, &window_->record()->factors);
            (add_squares<Storages>(device, slabs, factors, found), ...);
        }
        if (sharding != nullptr) found = sharding->unite(found);
        device.run(detail::add_measured{window_->record(), window_->found_inf() + part, found.squares.value(), found.found});
        return true;
    }
    template <class Storage, class Any>
    static void add_squares(Any& device, const gradient_slabs& slabs, const kernel::gradient_factors& factors,
                            detail::found_squares& found) {
        using T = typename Storage::accumulate;
        if constexpr (!has_sparse_gradient<Storage>) {
            const store& parameters = slabs.owner();
            const std::size_t group = parameters.template find_group<Storage>();
            for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
                const store::entry& e = parameters.entries()[i];
                if (e.group != group || e.frozen) continue;
                const element_range part = parameters.sharding() == nullptr ? element_range{0, parameters.room(e)}
                                                                            : parameters.sharding()->measured_here(i);
                const T* const from = reinterpret_cast<const T*>(slabs.slab(group)) + (e.gradient + part.first);
                detail::add_squares(device, parameters.memory(), from, part.count, factors, found);
            }
        }
    }
    template <class Any, class... Storages>
    void measure_groups(Any& device, std::size_t part, types<Storages...>) const {
        (measure_group<Storages>(device, part), ...);
    }
    template <class Storage, class Any>
    void measure_group(Any& device, std::size_t part) const {
        using T = typename Storage::accumulate;
        detail::window& w = *window_;
        const gradient_slabs& slabs = w.parts[part].slabs;
        const std::size_t group = slabs.owner().template find_group<Storage>();
        if (group == store::nowhere) return;
        const auto add = [&](const auto& what, const auto&... limit) {
            kernel::gradient_norm<Any>::add(device, what, w.record(), w.found_inf() + part, limit...);
        };
        const auto for_entries = [&](const auto& f) {
            const auto& entries = slabs.owner().entries();
            for (std::size_t i = 0; i < entries.size(); ++i) {
                if (entries[i].group == group && !entries[i].frozen) f(i, entries[i]);
            }
        };
        if constexpr (has_sparse_gradient<Storage>) {
            for_entries([&](std::size_t entry, const store::entry&) {
                const auto rows = slabs.template rows<T>(entry);
                add(as_const(flatten(rows.values)), kernel::row_limit{rows.count, rows.values.extent_of(1)});
            });
        } else {
            const const_view<T, 1> all(slabs.template group<Storage>(group));
            extent begin = 0;  // of the part that is neither read nor known
            bool is_all_known = takes_sums<Any>;
            const auto read_to = [&](extent end) {
                if (!is_all_known) add(const_view<T, 1>(all.data() + begin, {end - begin}));
            };
            if constexpr (takes_sums<Any>) {
                for_entries([&](std::size_t entry, const store::entry& e) {
                    const square_sum* const squares = w.is_clipped ? nullptr : slabs.squares(entry);
                    if (squares == nullptr) {
                        is_all_known = false;
                    } else {
                        read_to(static_cast<extent>(e.gradient));
                        add(*squares);
                        begin = static_cast<extent>(e.gradient + e.count);
                        is_all_known = true;  // except for zeros between parameters
                    }
                });
            }
            read_to(all.size());
        }
    }

    detail::window* window_;
    std::shared_ptr<const detail::window_clock> clock_;
    std::uint64_t serial_;
    Device* device_;
};

/// Whether T is a `gradients`.
template <class T>
inline constexpr bool is_gradients = false;
template <class Device, class Models>
inline constexpr bool is_gradients<gradients<Device, Models>> = true;

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/scale/gradients.body.hpp>
#endif
