// SPDX-License-Identifier: MIT
/// \file
/// A device that notes which kernels are launched and runs none: for tests of what is chosen, with operands of any size at
/// addresses where there is no memory.
///
///     support::recording_device device{simt::architecture_of(90), true, note};
///     kernel::matmul<decltype(device)>::run<bfloat16>(device, a, b, epilogue);      // calls note(kernel) for each launch
#pragma once

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/exec/simt/simt.hpp>
#include <halftone/exec/workspace.hpp>

namespace support {

template <class Note>
class recording_device {
  public:
    static constexpr bool runs_simt_kernels = true;

    /// `with_special_code`: its code has warpgroups if it is a Hopper, and 8-bit matrix instructions if the GPU has them.
    recording_device(const halftone::simt::architecture& gpu, bool with_special_code, const Note& note)
        : gpu_(gpu), with_special_code_(with_special_code), note_(note), workspace_(halftone::detail::measuring{}) {}

    halftone::workspace& scratch() { return workspace_; }
    halftone::simt::architecture architecture() const { return gpu_; }
    bool has_wgmma_code() const { return with_special_code_ && gpu_.version == 90; }
    template <class Kernel>
    bool has_eight_bit_code() const {
        return with_special_code_ && gpu_.has_eight_bit_units();
    }

    struct map {};
    template <class T, class... Shape>
    map tile_map(const T*, const Shape&...) {
        return {};
    }
    template <class Kernel>
    void launch(const Kernel& kernel) {
        note_(kernel);
    }
    template <class T>
    void fill(T*, halftone::extent, T) {}
    void copy(void*, const void*, std::size_t) {}
    bool reaches(const void*) const { return true; }

  private:
    halftone::simt::architecture gpu_;
    bool with_special_code_;
    Note note_;
    halftone::workspace workspace_;
};

}  // namespace support
