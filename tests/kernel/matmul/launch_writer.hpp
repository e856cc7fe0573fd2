// SPDX-License-Identifier: MIT
/// \file
/// Writes a GPU's launches of products in the letters of device_choices.hpp, for a device that notes them.
///
///     std::string launched;
///     support::recording_device device{gpu, true, matmul_test::launch_writer{&launched, false}};
#pragma once

#include <string>
#include <type_traits>

#include <halftone/kernel/matmul/device.hpp>

#include "kernel/matmul/device_choices.hpp"

namespace matmul_test {

namespace gpu = halftone::kernel::on_device;

/// A launch in the letters of device_choices.hpp; empty for kernels that do not multiply.
struct launch_writer {
    std::string* text;
    bool of_bytes;

    template <class Kernel>
    void operator()(const Kernel&) const {}
    template <class Bits>
    void operator()(const gpu::aligned_copy_kernel<Bits>&) const {
        if (*text != "c") *text += "c";
    }
    template <class Compute, class Tiling, gpu::panel_load Load, class A, class B, class O, class R>
    void operator()(const gpu::matrix_unit_kernel<Compute, Tiling, Load, A, B, O, R>& k) const {
        const char letter = std::is_same_v<Compute, gpu::eight_bits> ? 'b'
                            : Load == gpu::panel_load::direct        ? 's'
                                                                     : 'r';
        *text += letter + std::to_string(Tiling::tile_n) + "." + std::to_string(Tiling::depth) +
                 parts(k.part.count(k.panels()));
    }
    template <class Compute, class Tiling, class A, class B, class O, class R>
    void operator()(const gpu::multiply_add_kernel<Compute, Tiling, A, B, O, R>& k) const {
        *text += "f" + std::to_string(Tiling::tile_n) + parts(k.grid().z);
    }
    template <class Compute, class Tiling, class Map, class O, class R>
    void operator()(const gpu::warpgroup_kernel<Compute, Tiling, Map, O, R>& k) const {
        const int count = k.part.count(k.panels());
        *text += (of_bytes ? "v" : "w") + std::to_string(Tiling::tile_n) + parts(count);
        if (count == 1) *text += storing_text({k.stores_in_bulk, k.sets, k.most_offset});
    }
    /// Of a large batch in parts some matrices at a time, alike.
    template <class Kernel>
    void operator()(const gpu::each_matrix_kernel<Kernel>& all) const {
        std::string one;
        launch_writer{&one, of_bytes}(all.first);
        if (*text != one) *text += one;
    }

  private:
    static std::string parts(int count) { return count == 1 ? std::string() : "/" + std::to_string(count); }
};

}  // namespace matmul_test
