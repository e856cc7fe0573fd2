// SPDX-License-Identifier: MIT
/// \file
/// The kernel of pointwise operations whose operands have any strides, one thread per element; device.hpp launches it.
#pragma once

#include <utility>

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/map/map.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// The positions of an operand's elements: the element of index 0 is at data + first, so that strides may be negative.
struct strided_map_place {
    std::byte* data = nullptr;
    extent count = 0, first = 0;
    axis_values steps{};

    strided_map_place() = default;
    strided_map_place(const map_operand& o, int axes, const axis_values& extents, const axis_values& s) : steps(s) {
        if (o.data == nullptr) return;
        count = 1;
        for (int axis = 0; axis < axes; ++axis) {
            const extent span = (extents.of[axis] - 1) * s.of[axis];
            count += span < 0 ? -span : span;
            if (span < 0) first -= span;
        }
        data = o.data - first * o.element_bytes;
    }
    template <class T>
    HALFTONE_HD global_span<T> span() const {
        return {reinterpret_cast<T*>(data), count};
    }
};

// What the kernel does with an operand.
template <class T>
struct strided_input {
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static float load(Simt simt, const strided_map_place& place, extent at) {
        return detail::in_float(simt.load(place.span<const T>(), at));
    }
};
struct strided_unread {
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static float load(Simt, const strided_map_place&, extent) {
        return 0;
    }
};
template <class T>
struct strided_output {
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void store(Simt simt, const strided_map_place& place, extent at, float value,
                                                  write_mode mode) {
        if (place.data == nullptr) return;
        if constexpr (!wide_number<T>) {  // gradients alone are added to, and none is of such a type
            if (mode == write_mode::add) value = detail::in_float(simt.load(place.span<const T>(), at)) + value;
        }
        simt.store(place.span<T>(), at, T(value));
    }
};
struct strided_no_output {
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void store(Simt, const strided_map_place&, extent, float, write_mode) {}
};

template <class Expressions, class Outputs, class Inputs>
struct strided_map_kernel {
    static constexpr int threads = 256, outputs = Outputs::count, operands = Outputs::count + Inputs::count;
    static constexpr word shared_bytes = 0;

    Expressions expressions;
    axis_values extents{};
    int axes = 1;
    strided_map_place places[operands]{};
    write_mode modes[outputs]{};

    HALFTONE_HD extent size() const {
        extent n = 1;
        for (int axis = 0; axis < axes; ++axis) n *= extents.of[axis];
        return n;
    }
    grid_shape grid() const { return simt::blocks_for(size(), threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= size()) return;
        extent at[operands];
        HALFTONE_UNROLL for (int k = 0; k < operands; ++k) at[k] = places[k].first;
        for (int axis = axes - 1; axis >= 0; --axis) {
            const extent next = axis == 0 ? 0 : i / extents.of[axis], index = i - next * extents.of[axis];
            HALFTONE_UNROLL for (int k = 0; k < operands; ++k) at[k] += index * places[k].steps.of[axis];
            i = next;
        }
        run(simt, at, std::make_index_sequence<Outputs::count>{}, std::make_index_sequence<Inputs::count>{});
    }

  private:
    HALFTONE_KERNEL template <class Simt, std::size_t... K, std::size_t... I>
    HALFTONE_HD HALFTONE_INLINE void run(Simt simt, const extent* at, std::index_sequence<K...>,
                                         std::index_sequence<I...>) const {
        const float x[] = {load<I>(simt, at)..., 0.0f};
        // All results are computed before the first is stored, because an output may be an input.
        const float y[] = {scalar::evaluate(expressions.template at<K>(), x)...};
        (store<K>(simt, at, y[K]), ...);
    }
    HALFTONE_KERNEL template <std::size_t I, class Simt>
    HALFTONE_HD HALFTONE_INLINE float load(Simt simt, const extent* at) const {
        using input = std::remove_cvref_t<decltype(std::declval<Inputs>().template at<I>())>;
        return input::load(simt, places[outputs + I], at[outputs + I]);
    }
    HALFTONE_KERNEL template <std::size_t K, class Simt>
    HALFTONE_HD HALFTONE_INLINE void store(Simt simt, const extent* at, float value) const {
        using output = std::remove_cvref_t<decltype(std::declval<Outputs>().template at<K>())>;
        output::store(simt, places[K], at[K], value, modes[K]);
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
