// SPDX-License-Identifier: MIT
/// \file
/// Tests of the emulated GPU: kernels with one mistake each, which it must report in every schedule, with the right message.
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <emulator/damage.hpp>

namespace emulator_faults_tests {

namespace ht = halftone;
using namespace ht::simt;
using ht::extent;
namespace emulator = ht::emulator;

enum class fault {
    none,
    barrier_in_half_of_the_block,
    two_barriers_taken_for_one,
    lane_skips_a_shuffle,
    lanes_in_different_words,
    masks_differ,
    shared_store_out_of_its_span,
    shared_store_out_of_the_block,
    global_load_out_of_bounds,
    global_load_before_the_span,
    misaligned_vector,
    misaligned_shared_vector,
    nobody_wrote,
    returns_with_a_copy_in_flight,
    copy_from_a_misaligned_address,
    copy_of_more_than_there_is,
    read_before_the_wait,
    no_barrier_after_the_wait,
    no_barrier_between_write_and_read,
    no_barrier_between_read_and_write,
    two_writers,
    no_warp_barrier,
    warp_barrier_between_warps,
};

constexpr const char* sentences[] = {
    "",
    "waits for ever in barrier",
    " part: barrier at faults.cpp",
    ": thread 32 waits in shuffle",
    "warp 1 parts: ",
    "differ, or one leaves the warp",
    "of a shared span of 200",
    "or beyond the block's 2048",
    "of a global span of 48",
    "touches 1 from element -1 on of a global span of 48",
    "or it is misaligned",
    "touches 16 shared bytes at 4: misaligned",
    "which no thread has written",
    "returns with a copy in flight",
    "from an address 4 past a multiple of 16",
    "copies 4 elements of a global span of 3",
    "is in flight: not yet waited for",
    "with no barrier between",
    "with no barrier between",
    "with no barrier between",
    "with no barrier between",
    "with no barrier between",
    "with no barrier between",
};
constexpr int faults = static_cast<int>(std::size(sentences));

/// Two warps that copy, exchange and add up; fault::none is correct.
template <fault Planted>
struct planted_kernel {
    static constexpr int threads = 64;
    static constexpr word shared_bytes = 2048;
    static constexpr bool has(fault f) { return Planted == f; }

    global_span<float> x;  // 48
    global_span<float> y;  // (64)

    grid_shape grid() const { return {2, 1, 1}; }

    template <class Simt>
    void operator()(Simt simt) const {
        const int t = simt.thread();
        const shared_span<float> exchange{0, 64}, copied{1024, 256};
        const shared_span<chunk<float>> mine{static_cast<word>(1024 + 16 * t), 1};
        const global_span<const float> source{x.data, x.count};

        if (has(fault::barrier_in_half_of_the_block)) {
            if (t < 32) simt.barrier();
            return;
        }
        if (has(fault::two_barriers_taken_for_one)) {
            if (t % 2 == 0) {
                simt.barrier();
            } else {
                simt.barrier();
            }
        }
        if (has(fault::lane_skips_a_shuffle) && t == 40) return;
        if (has(fault::lanes_in_different_words) && t == 40) simt.warp_barrier();
        const float other = simt.shuffle_xor(static_cast<float>(t), has(fault::masks_differ) && t == 40 ? 2 : 1);

        if (has(fault::shared_store_out_of_its_span)) simt.store(shared_span<float>{0, 200}, t + 150, 1.0f);
        if (has(fault::shared_store_out_of_the_block)) simt.store(shared_span<float>{0, 1000}, t + 512, 1.0f);
        if (has(fault::global_load_out_of_bounds)) simt.load(x, t);
        if (has(fault::global_load_before_the_span)) simt.load(x, t % 32 - 1);
        if (has(fault::misaligned_vector)) simt.load(as_vectors<4>(x.from(1)), 0);
        if (has(fault::misaligned_shared_vector)) simt.load(shared_span<chunk<float>>{4, 4}, 0);
        if (has(fault::nobody_wrote)) simt.load(copied, 4 * t);

        // Cleared by another warp, so that the memory has been written before it is read.
        simt.store(exchange, 63 - t, 0.0f);
        simt.store(shared_span<chunk<float>>{1024, 64}, 63 - t, chunk<float>{});
        simt.barrier();
        if (has(fault::copy_from_a_misaligned_address)) simt.async_copy16(mine, source.from(1), 4);
        if (has(fault::copy_of_more_than_there_is)) simt.async_copy16(mine, source.part(44, 3), 4);

        simt.async_copy16(mine, source.from(t % 8 * 4), 4);
        simt.async_commit();
        if (has(fault::returns_with_a_copy_in_flight)) return;
        if (!has(fault::read_before_the_wait)) simt.async_wait(constant<0>{});
        if (!has(fault::no_barrier_after_the_wait)) simt.barrier();
        const float near = simt.load(copied, (4 * t + 4) % 256);

        simt.store(exchange, has(fault::two_writers) ? t / 2 : t, other);
        if (has(fault::warp_barrier_between_warps)) {
            simt.warp_barrier();
        } else if (!has(fault::no_barrier_between_write_and_read)) {
            simt.barrier();
        }
        const float far = simt.load(exchange, 63 - t);
        if (!has(fault::no_barrier_between_read_and_write)) simt.barrier();

        // Among the lanes of a warp a barrier of the warp is enough.
        simt.store(exchange, t, far + near);
        if (!has(fault::no_warp_barrier)) simt.warp_barrier();
        simt.store(y, t, simt.load(exchange, t ^ 3));
    }
};

template <fault Planted>
bool run(emulator::device& device) {
    alignas(16) float x[48];
    float y[64] = {};
    for (int i = 0; i < 48; ++i) x[i] = static_cast<float>(100 * i);
    device.launch(planted_kernel<Planted>{{x, 48}, {y, 64}});
    bool right = true;
    for (int t = 0; t < 64; ++t) {
        const int source = t ^ 3;
        const float far = static_cast<float>((63 - source) ^ 1), near = x[(source + 1) % 64 % 8 * 4];
        right = right && y[t] == far + near;
    }
    return right;
}

template <int Number>
void is_caught() {
    emulator::device device;
    for (int seed = 1; seed <= emulator::seeds; ++seed) {
        const std::string problem =
            emulator::problem_of(device, run<fault{Number}>, {.seed = static_cast<std::uint64_t>(seed)});
        CAPTURE(Number);
        CAPTURE(seed);
        CAPTURE(problem);
        CHECK(problem.find(sentences[Number]) != std::string::npos);
        CHECK(problem.rfind("block (", 0) == 0);
    }
}

TEST_CASE("machine: every planted fault is caught in every schedule, in its own words") {
    [&]<int... Numbers>(std::integer_sequence<int, Numbers...>) {
        (is_caught<Numbers + 1>(), ...);
    }(std::make_integer_sequence<int, faults - 1>{});
}

TEST_CASE("machine: the same kernel without a fault is right in every schedule, and every damage to it is noticed") {
    emulator::check_schedules(run<fault::none>);
    CHECK(emulator::check_damages(run<fault::none>) == 6);  // four barriers, a wait, a shuffle
}

/// Damage is noticed by check_damages, so a needless barrier must not be.
struct needless_barrier_kernel {
    static constexpr int threads = 64;
    static constexpr word shared_bytes = 0;
    global_span<float> y;
    grid_shape grid() const { return {1, 1, 1}; }
    template <class Simt>
    void operator()(Simt simt) const {
        simt.barrier();
        simt.store(y, simt.thread(), 1.0f);
    }
};

TEST_CASE("machine: a needless barrier can go unnoticed") {
    float y[64];
    emulator::device device;
    const auto test = [&](emulator::device& d) {
        d.launch(needless_barrier_kernel{{y, 64}});
        return y[63] == 1.0f;
    };
    CHECK(emulator::problem_of(device, test, {}) == "");
    CHECK(device.count().sites[static_cast<int>(emulator::damage::barrier_removed)] == 1);
    CHECK(emulator::problem_of(device, test, {.harm = emulator::damage::barrier_removed}, 0) == "");
}

TEST_CASE("machine: damage can be done to one launch of several") {
    emulator::device device;
    const auto twice = [](emulator::device& d) { return run<fault::none>(d) && run<fault::none>(d); };
    for (const long launch : {0, 1}) {
        const long before = device.launches();
        CHECK(emulator::problem_of(device, twice, {.harm = emulator::damage::barrier_removed, .harmed_site = 1},
                                   launch) != "");
        CHECK(device.launches() == before + launch);  // the undamaged ones were completed
    }
    CHECK(emulator::problem_of(device, twice, {.harm = emulator::damage::barrier_removed, .harmed_site = 1}, 2) == "");
}

/// Whether the host can read a byte: a system call returns an error, where a load would fault.
bool can_read(const void* p) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const ssize_t written = write(ends[1], p, 1);
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    if (written != 1) CHECK(error == EFAULT);
    return written == 1;
}

TEST_CASE("device: its memory is closed to the host, and open where a GPU's would be") {
    emulator::device device;
    ht::buffer memory(device.memory(), 3 * 4096, ht::memory_kind::workspace);
    auto* const first = memory.data();
    CHECK_FALSE(can_read(first));
    CHECK_FALSE(can_read(first + 3 * 4096 - 1));
    CHECK(device.reaches(first));
    CHECK_FALSE(device.reaches(&device));

    float y[64], back[64] = {};
    auto* const on_device = reinterpret_cast<float*>(first);
    device.launch(needless_barrier_kernel{{on_device, 64}});
    CHECK_FALSE(can_read(first));
    device.memory().read(back, on_device, sizeof(back));
    CHECK(back[0] == 1.0f);
    CHECK(back[63] == 1.0f);

    device.fill(on_device, 64, 2.0f);
    device.copy(y, on_device, sizeof(y));
    CHECK(y[5] == 2.0f);
    bool is_open = false;
    device.run([&] { is_open = can_read(first) && on_device[7] == 2.0f; });
    CHECK(is_open);
    CHECK_FALSE(can_read(first));

    // After a launch that failed, too.
    CHECK_THROWS_AS(device.launch(planted_kernel<fault::nobody_wrote>{{on_device, 48}, {on_device + 64, 64}}),
                    emulator::failure);
    CHECK_FALSE(can_read(first));

    // A lease is such memory.
    const ht::workspace::lease scratch(device.scratch(), 100);
    CHECK_FALSE(can_read(scratch.data()));
}

TEST_CASE("device: an empty grid launches nothing") {
    struct nothing : needless_barrier_kernel {
        grid_shape grid() const { return {0, 1, 1}; }
    };
    emulator::device device;
    device.launch(nothing{});
    CHECK(device.launches() == 0);
}

}  // namespace emulator_faults_tests
