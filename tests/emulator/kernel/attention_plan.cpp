// SPDX-License-Identifier: MIT
/// \file
/// The kernels of attention on a GPU are those that its plan names: of many shapes, types, layouts and architectures, launched on a
/// device that runs none.
#include <cstdint>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/attention/device.hpp>
#include <halftone/number.hpp>

#include "kernel/attention/device_choices.hpp"
#include "support/random.hpp"
#include "support/recording_device.hpp"

namespace emulator_kernel_attention_plan_tests {

namespace ht = halftone;
namespace simt = ht::simt;
using namespace ht::kernel::on_device;
using ht::extent;

/// A launch in the letters of tests/kernel/attention/device_choices.hpp; empty for kernels that are no family's own.
struct writer {
    std::string* text;

    template <class Kernel>
    void operator()(const Kernel&) const {}
    template <class T, int Head, int Warpgroups, int Stages, bool Persistent, class Map>
    void operator()(
        const warpgroup_attention_kernel<T, warpgroup_attention_tiling<Head, Warpgroups, Stages, Persistent>, Map>&)
        const {
        *text += "w" + std::to_string(Head) + "." + std::to_string(64 * Warpgroups);
    }
    template <class T, int Head, class Map>
    void operator()(const warpgroup_attention_backward_kernel<T, Head, attention_side::queries, Map>&) const {
        *text += "w" + std::to_string(Head);
    }
    template <class T, int Head, int RowBlocks, int Warps, int KeyRows>
    void operator()(const flash_attention_kernel<T, Head, RowBlocks, Warps, KeyRows>&) const {
        *text += "m" + std::to_string(Head) + large<T, Head>(Warps);
    }
    template <class T, int Head, int RowBlocks, int Warps, int Rows>
    void operator()(
        const flash_attention_backward_kernel<T, Head, RowBlocks, Warps, Rows, attention_side::queries>&) const {
        *text += "m" + std::to_string(Head) + large<T, Head>(Warps);
    }
    template <class Compute, class T, int Parts>
    void operator()(const plain_attention_kernel<Compute, T, Parts>&) const {
        *text += "p" + std::to_string(32 * Parts);
    }
    template <class Compute, class T, int Parts>
    void operator()(const plain_attention_backward_kernel<Compute, T, Parts, attention_side::queries>&) const {
        *text += "p" + std::to_string(32 * Parts);
    }

  private:
    template <class T, int Head>
    static const char* large(int warps) {
        return Head == 256 && warps == (sizeof(T) == 2 ? 8 : 4) ? "L" : "";
    }
};

/// A tensor (batch, time, heads, head_size) at an address where no memory is, with `gap` elements between heads.
template <class T>
ht::view<T, 4> tensor_at(std::uintptr_t number, const ht::shape<4>& of, extent gap) {
    const extent head = of[3] + gap, row = of[2] * head;
    return {reinterpret_cast<T*>(number << 40), of, {of[1] * row, row, head, 1}};
}

/// Runs a pass, and compares what was launched with the plan of the same operands.
template <class Compute, class T>
void launches_its_plan(const simt::architecture& gpu, bool with_special_code, const ht::shape<4>& of, extent groups,
                       extent gap, attention_pass pass) {
    const ht::shape<4> of_keys{of[0], of[1], groups, of[3]};
    std::string launched;
    support::recording_device device{gpu, with_special_code, writer{&launched}};
    const auto q = tensor_at<const T>(1, of, gap), o = tensor_at<const T>(2, of, 0);
    const auto k = tensor_at<const T>(3, of_keys, gap), v = tensor_at<const T>(4, of_keys, gap);
    const ht::kernel::attention_forward<T> forward{q, k, v, tensor_at<T>(5, of, 0)};
    const ht::view<const float, 4> sums(reinterpret_cast<const float*>(64), {of[0], of[2], of[1], 2});
    const ht::kernel::attention_backward<T> backward{q,
                                                     k,
                                                     v,
                                                     o,
                                                     sums,
                                                     tensor_at<const T>(6, of, 0),
                                                     tensor_at<T>(7, of, gap),
                                                     tensor_at<T>(8, of_keys, gap),
                                                     tensor_at<T>(9, of_keys, gap)};
    const auto call = [&]<class D>(D& d) {
        if (pass == attention_pass::forward) return ht::kernel::attention<D>::template forward<Compute>(d, forward);
        ht::kernel::attention<D>::template backward<Compute>(d, backward);
    };
    call(device);
    // The device's twin takes the same plan, and so the same scratch memory.
    CHECK(ht::workspace_bytes(device, call) == device.scratch().peak());
    const bool has_16_bits = sizeof(T) == 2 && std::is_same_v<Compute, T>;
    const attention_types& types = named_attention_types[has_16_bits                             ? 0
                                                         : std::is_same_v<Compute, ht::tfloat32> ? 2
                                                                                                 : 3];
    attention_case c = dense_case(of[0], of[1], of[2], of[3], types, *simt::target_named("sm_80"), pass);
    c.e.groups = groups;
    c.gpu = gpu, c.has_wgmma = device.has_wgmma_code();
    const bool are_aligned =
        (of[2] == 1 && of[1] == 1) || ((of[3] + gap) * sizeof(T) % 16 == 0 && of[3] * sizeof(T) % 16 == 0);
    c.are_chunks = c.have_maps = are_aligned;
    INFO(of, " gap ", gap, " sm_", gpu.version);
    CHECK(launched == attention_test::choice_of(c));
}

template <class Compute, class T>
void launch_plans() {
    support::random data{5};
    const auto one_of = [&data](const auto& all) { return all[data.below(static_cast<int>(std::size(all)))]; };
    const extent times[] = {2, 64, 100, 1024, 4096}, batches[] = {2, 3, 16}, heads[] = {2, 4, 12, 32},
                 head_sizes[] = {8, 20, 32, 64, 64, 72, 96, 100, 128, 136, 256}, gaps[] = {0, 0, 0, 4, 8};
    const int versions[] = {80, 86, 90, 90, 100, 120};
    for (int i = 0; i < 600; ++i) {
        simt::architecture gpu = simt::architecture_of(one_of(versions));
        if (data.below(4) == 0) gpu.multiprocessors = 1 + data.below(40);
        gpu.batch_invariant = data.below(8) == 0;
        const extent number = one_of(heads), groups = data.below(2) == 0 ? number : 2;
        const ht::shape<4> of{one_of(batches), one_of(times), number, one_of(head_sizes)};
        const attention_pass pass = data.below(2) == 0 ? attention_pass::forward : attention_pass::backward;
        launches_its_plan<Compute, T>(gpu, data.below(8) != 0, of, groups, one_of(gaps), pass);
    }
}

TEST_CASE("attention on a GPU launches what its plan says") {
    SUBCASE("bf16") { launch_plans<ht::bfloat16, ht::bfloat16>(); }
    SUBCASE("fp16") { launch_plans<ht::float16, ht::float16>(); }
    SUBCASE("tf32") { launch_plans<ht::tfloat32, float>(); }
    SUBCASE("fp32") { launch_plans<float, float>(); }
    SUBCASE("fp32 in bf16") { launch_plans<ht::bfloat16, float>(); }
}

}  // namespace emulator_kernel_attention_plan_tests
