// SPDX-License-Identifier: MIT
/// \file
/// mbarriers, bulk copies and products of warpgroups on the emulated GPU: a small matrix product is correct in every schedule, and
/// each planted mistake is reported with the right message.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/damage.hpp>
#include <emulator/matrix_sums.hpp>

namespace emulator_asynchronous_faults_tests {

namespace ht = halftone;
using namespace ht::simt;
using ht::extent;
namespace emulator = ht::emulator;

enum class fault {
    none,
    not_initialised,
    no_initialisation_fence,
    no_barrier_after_initialisation,
    initialised_twice,
    parity_of_two,
    arrives_twice,
    expects_too_little,
    expects_too_much,
    slots_stay_full,
    copy_to_a_misaligned_place,
    copy_from_a_misaligned_column,
    copy_beyond_the_block,
    copy_over_an_mbarrier,
    copy_over_stores,
    copy_from_a_misaligned_line,
    copy_that_nobody_waits_for,
    no_wait_for_an_empty_slot,
    empty_before_the_wait,
    empty_for_three_of_four_warps,
    no_wait_for_a_full_slot,
    thread_that_does_not_wait,
    load_without_a_wait,
    store_to_a_slot_that_is_read,
    product_of_stores,
    product_of_what_nobody_wrote,
    operand_at_a_misaligned_place,
    operand_beyond_the_block,
    no_wgmma_fence,
    no_wgmma_fence_after_a_wait,
    threads_multiply_different_things,
    warp_skips_a_product,
    thread_in_another_word,
    sums_touched,
    returns_with_a_product_under_way,
    registers_no_multiple_of_eight,
    too_few_registers,
    more_registers_than_there_are,
    fewer_that_are_more,
};

/// `|` separates messages of which a schedule may show either one first.
constexpr const char* sentences[] = {
    "",
    "uses an mbarrier at 49152, which no thread has initialised|uses an mbarrier at 49168, which no thread has initialised",
    "initialised, with no fence and barrier between",
    "initialised, with no fence and barrier between|which no thread has initialised",
    "writes shared bytes at 49152, where there is an mbarrier",
    "waits for a parity of 2",
    "of which all 1 arrivals were made",
    "gets more bytes than it expects",
    "of the mbarrier at 49152 lacks 0 arrivals and 128 bytes",
    "waits for ever in mbarrier_wait at asynchronous_faults.cpp",
    "copies to 512, which is no multiple of 1024",
    "copies from column 4, which is no multiple of 16 bytes",
    "copies 8192 bytes to 50176, beyond the block's 50304",
    ", where there is an mbarrier",
    "wrote: no fence orders copies after stores",
    "empty, too large or misaligned",
    "ends with a copy that no thread has waited for: bulk_copy at",
    "thread 128 (bulk_copy at|of which all 1 arrivals were made",
    "reads them: not yet waited for|, with no barrier between",
    "while warp 3 (wgmma at|read by warp 3 (wgmma at",
    "which no thread has written|: its mbarrier has not been waited for by thread|thread 128 (bulk_copy at",
    ": its mbarrier has not been waited for by thread 37",
    ": its mbarrier has not been waited for|which no thread has written",
    "thread 64 (store at asynchronous_faults.cpp|with no barrier between",
    ": no fence orders products after stores",
    "which no thread has written",
    "which is no multiple of 1024 and some steps of the depth",
    "reads beyond the block's 50304",
    "multiplies with no wgmma_fence before",
    "multiplies with no wgmma_fence before",
    "parts: thread 37 multiplies something else in wgmma at",
    "waits for ever in wgmma at",
    "parts: thread",
    "changed sums while a product was under way that adds to them: wgmma at",
    "returns with a product under way: wgmma at",
    "44 registers of a thread that has 168",
    "16 registers of a thread that has 168",
    "waits for ever in more_registers at",
    "176 registers of a thread that has 168",
};
constexpr int faults = static_cast<int>(std::size(sentences));

/// c = a b, m x n over a depth of k; tiles of 64 x 128 by a ring of two slots of 64 of the depth. A block computes all tiles of
/// its column, one after the other. fault::none is correct.
template <class T, bool A, bool B>
struct product_kernel {
    static constexpr int threads = 256;
    static constexpr word slots = 2, a_bytes = 64 * 128, slot_bytes = a_bytes + 128 * 128,
                          mbarriers = slots * slot_bytes;
    static constexpr word shared_bytes = mbarriers + 1024 + 128;

    emulator::tile_map a, b;
    global_span<float> c;
    int m, n, k;
    fault planted;

    bool has(fault f) const { return planted == f; }
    grid_shape grid() const { return {(n + 127) / 128, 1, 1}; }
    static shared_span<mbarrier> full(word slot) { return {mbarriers + 8 * slot, 1}; }
    static shared_span<mbarrier> empty(word slot) { return {mbarriers + 8 * (slots + slot), 1}; }

    struct ring {
        word slot = 0, parity = 0;
        void go_on() {
            if (++slot == slots) slot = 0, parity ^= 1;
        }
    };

    template <class Simt>
    void operator()(Simt simt) const {
        if (has(fault::copy_over_stores) && simt.thread() == 128) simt.store(shared_span<float>{0, 64}, 5, 1.0f);
        if (has(fault::product_of_stores)) {
            for (word i = 0; i < slot_bytes / 4; i += 256)
                simt.store(shared_span<float>{0, slot_bytes / 4}, static_cast<int>(i) + simt.thread(), 1.0f);
        }
        if (simt.thread() == 0) {
            for (word s = 0; s < slots && !has(fault::not_initialised); ++s) {
                simt.mbarrier_init(full(s), 1);
                simt.mbarrier_init(empty(s), has(fault::empty_for_three_of_four_warps) ? 3 : 4);
            }
            if (has(fault::initialised_twice)) simt.mbarrier_init(full(0), 1);
            if (!has(fault::no_initialisation_fence)) simt.mbarrier_init_fence();
        }
        if (!has(fault::no_barrier_after_initialisation)) simt.barrier();
        simt.warp() >= 4 ? produce(simt) : consume(simt);
    }

    template <class Simt>
    void produce(Simt simt) const {
        if (has(fault::registers_no_multiple_of_eight)) simt.fewer_registers(constant<44>{});
        if (has(fault::too_few_registers)) simt.fewer_registers(constant<16>{});
        if (has(fault::fewer_that_are_more)) simt.fewer_registers(constant<176>{});
        if (!has(fault::more_registers_than_there_are)) simt.fewer_registers(constant<40>{});
        if (has(fault::load_without_a_wait) && simt.thread() == 160) simt.load(shared_span<T>{0, 64}, 3);
        if (simt.thread() != 128) return;
        if (has(fault::product_of_stores) || has(fault::product_of_what_nobody_wrote)) return;
        if (has(fault::parity_of_two)) simt.mbarrier_wait(full(0), 2);
        ring at;
        for (int row = 0; row < m; row += 64) {
            for (int depth = 0; depth < k; depth += 64, at.go_on()) {
                if (!has(fault::no_wait_for_an_empty_slot)) simt.mbarrier_wait(empty(at.slot), at.parity ^ 1);
                copy(simt, at.slot * slot_bytes, row, depth, full(at.slot));
            }
        }
        if (has(fault::copy_that_nobody_waits_for)) {
            simt.mbarrier_wait(empty(at.slot), at.parity ^ 1);
            copy(simt, at.slot * slot_bytes, 0, 0, full(at.slot));
        }
    }
    template <class Simt>
    void copy(Simt simt, word to, int row, int depth, shared_span<mbarrier> done) const {
        const int column = 128 * simt.block().x;
        word bytes = slot_bytes;
        if (has(fault::expects_too_little)) bytes -= 1024;
        if (has(fault::expects_too_much)) bytes += 128;
        simt.mbarrier_expect(done, bytes);
        if (has(fault::arrives_twice)) simt.mbarrier_arrive(done);
        const int x = A ? row : depth, y = A ? depth : row;
        emulator::tile_map from = a;
        if (has(fault::copy_from_a_misaligned_line)) from.leading += 4;
        if (has(fault::copy_to_a_misaligned_place)) simt.bulk_copy(to + 512, from, x, y, done);
        if (has(fault::copy_from_a_misaligned_column)) simt.bulk_copy(to, from, 4, y, done);
        if (has(fault::copy_beyond_the_block)) simt.bulk_copy(mbarriers + 1024, from, x, y, done);
        if (has(fault::copy_over_an_mbarrier)) simt.bulk_copy(mbarriers - 7168, from, x, y, done);
        simt.bulk_copy(to, from, x, y, done);
        if constexpr (B) {
            simt.bulk_copy(to + a_bytes, b, column, depth, done);
            simt.bulk_copy(to + a_bytes + 8192, b, column + 64, depth, done);
        } else {
            simt.bulk_copy(to + a_bytes, b, depth, column, done);
        }
    }

    template <class Simt>
    void consume(Simt simt) const {
        const bool is_odd = simt.thread() == 37;  // the thread that behaves differently
        simt.more_registers(constant<232>{});
        ring at;
        for (int row = 0; row < m; row += 64) {
            vec<float, 4> sums[16];
            word before = 0;
            for (int depth = 0; depth < k; depth += 64, at.go_on()) {
                const word a_at = at.slot * slot_bytes, b_at = a_at + a_bytes;
                const bool waits = !has(fault::no_wait_for_a_full_slot) && !has(fault::product_of_stores) &&
                                   !has(fault::product_of_what_nobody_wrote) &&
                                   !(has(fault::thread_that_does_not_wait) && is_odd);
                if (waits) simt.mbarrier_wait(full(at.slot), at.parity);
                if (has(fault::store_to_a_slot_that_is_read) && simt.thread() == 64 && depth == 64)
                    simt.store(shared_span<T>{before * slot_bytes, 64}, 9, T(0.0f));
                if (!has(fault::no_wgmma_fence) && (!has(fault::no_wgmma_fence_after_a_wait) || row == 0))
                    simt.wgmma_fence();
                if (has(fault::thread_in_another_word) && is_odd) simt.more_registers(constant<240>{});
                if (has(fault::warp_skips_a_product) && simt.warp() == 2) return;
                for (word step = 0; step < 4; ++step) {
                    wgmma_operand<A> left{a_at + step * (A ? 2048 : 32)};
                    if (has(fault::operand_at_a_misaligned_place)) left.offset += 16;
                    if (has(fault::operand_beyond_the_block)) left.offset += mbarriers;
                    if (has(fault::threads_multiply_different_things) && is_odd) left.offset += 1024;
                    simt.wgmma(element<T>{}, sums, left, wgmma_operand<B>{b_at + step * (B ? 2048 : 32)},
                               depth > 0 || step > 0);
                    if (has(fault::sums_touched)) sums[3][1] = 0;
                }
                simt.wgmma_commit();
                if (has(fault::returns_with_a_product_under_way)) return;
                if (has(fault::empty_before_the_wait) && simt.lane() == 0) simt.mbarrier_arrive(empty(at.slot));
                simt.wgmma_wait(constant<1>{});
                if (depth > 0) release(simt, before);
                before = at.slot;
            }
            simt.wgmma_wait(constant<0>{});
            release(simt, before);
            for (int j = 0; j < 16; ++j) {
                for (int i = 0; i < 4; ++i) {
                    const int r = row + 16 * simt.warp() + simt.lane() / 4 + 8 * (i / 2);
                    const int q = 128 * simt.block().x + 8 * j + simt.lane() % 4 * 2 + i % 2;
                    if (r < m && q < n) simt.store(c, extent{r} * n + q, sums[j][i]);
                }
            }
        }
    }
    template <class Simt>
    void release(Simt simt, word slot) const {
        if (has(fault::slots_stay_full) || has(fault::empty_before_the_wait)) return;
        if (has(fault::empty_for_three_of_four_warps) && simt.warp() == 3) return;
        if (simt.lane() == 0) simt.mbarrier_arrive(empty(slot));
    }
};

/// A matrix whose lines are surrounded by values that must not be read.
template <class T>
struct matrix {
    extent inner, outer, leading = (inner + 7) / 8 * 8;
    std::vector<T> all = std::vector<T>(static_cast<std::size_t>(leading * outer + 16), T(1000.0f));
    T* data() { return all.data() + (16 - reinterpret_cast<std::uintptr_t>(all.data()) % 16) / 2; }
    T& at(extent x, extent y) { return data()[y * leading + x]; }
};

constexpr int m = 100, n = 136, k = 200;
struct product {
    std::vector<float> a = std::vector<float>(m * k), b = std::vector<float>(k * n), c = std::vector<float>(m * n);
};

/// The product of p's a and b, whose elements T represents exactly.
template <class T, bool A, bool B>
void multiply(emulator::device& device, product& p, fault planted = fault::none) {
    matrix<T> a{A ? m : k, A ? k : m}, b{B ? n : k, B ? k : n};
    for (int d = 0; d < k; ++d) {
        for (int i = 0; i < m; ++i) (A ? a.at(i, d) : a.at(d, i)) = T(p.a[static_cast<std::size_t>(i * k + d)]);
        for (int j = 0; j < n; ++j) (B ? b.at(j, d) : b.at(d, j)) = T(p.b[static_cast<std::size_t>(d * n + j)]);
    }
    device.launch(product_kernel<T, A, B>{device.tile_map(a.data(), a.inner, a.outer, a.leading, 64),
                                          device.tile_map(b.data(), b.inner, b.outer, b.leading, B ? 64 : 128),
                                          {p.c.data(), m * n},
                                          m,
                                          n,
                                          k,
                                          planted});
}

product of_small_integers() {
    product p;
    for (int d = 0; d < k; ++d) {
        for (int i = 0; i < m; ++i)
            p.a[static_cast<std::size_t>(i * k + d)] = static_cast<float>((7 * i + 3 * d) % 11 - 5);
        for (int j = 0; j < n; ++j)
            p.b[static_cast<std::size_t>(d * n + j)] = static_cast<float>((5 * j + 2 * d + d / 13) % 9 - 4);
    }
    for (int i = 0; i < m; ++i) {
        for (int d = 0; d < k; ++d) {
            for (int j = 0; j < n; ++j)
                p.c[static_cast<std::size_t>(i * n + j)] +=
                    p.a[static_cast<std::size_t>(i * k + d)] * p.b[static_cast<std::size_t>(d * n + j)];
        }
    }
    return p;
}
const product integers = of_small_integers();

template <class T, bool A, bool B>
bool is_right(emulator::device& device) {
    product p{integers.a, integers.b};
    multiply<T, A, B>(device, p);
    return p.c == integers.c;
}

const auto hopper = architecture_of(90);

TEST_CASE("asynchronous words: a product is right in every schedule, of K-major and MN-major operands") {
    emulator::check_schedules(is_right<ht::bfloat16, false, false>, hopper);
    emulator::check_schedules(is_right<ht::float16, true, true>, hopper);
    emulator::check_schedules(is_right<ht::bfloat16, true, false>, hopper);
    emulator::check_schedules(is_right<ht::float16, false, true>, hopper);
}

TEST_CASE("asynchronous words: every damage is found") {
    // A barrier, waits for full and empty slots, two for products.
    CHECK(emulator::check_damages(is_right<ht::bfloat16, false, true>, 5, hopper) == 5);
}

TEST_CASE("asynchronous words: sums of a Hopper's matrix units") {
    product p;
    for (std::size_t i = 0; i < p.a.size(); ++i)
        p.a[i] = ht::bfloat16(std::ldexp(static_cast<float>(i * 37 % 251) - 125, static_cast<int>(i % 13)));
    for (std::size_t i = 0; i < p.b.size(); ++i)
        p.b[i] = ht::bfloat16(std::ldexp(static_cast<float>(i * 29 % 241) - 120, static_cast<int>(i % 7)));
    emulator::device device({.mma = emulator::accumulation::truncating}, hopper);
    multiply<ht::bfloat16, false, true>(device, p);
    CHECK(device.count().warpgroup_mmas == 2 * 2 * 4 * 4);
    const auto multiplied = [](float x) { return emulator::multiplied{x, emulator::exponent_of(x, -126)}; };
    bool right = true;
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int depth = 0; depth < k; depth += 16) {
                emulator::multiplied a[16], b[16];
                for (int d = depth; d < std::min(depth + 16, k); ++d) {
                    a[d - depth] = multiplied(p.a[static_cast<std::size_t>(i * k + d)]);
                    b[d - depth] = multiplied(p.b[static_cast<std::size_t>(d * n + j)]);
                }
                sum = emulator::add_truncated(sum, a, b, 16, {16, 25, 23});
            }
            right = right && p.c[static_cast<std::size_t>(i * n + j)] == sum;
        }
    }
    CHECK(right);
}

TEST_CASE("asynchronous words: without races to look for the values are the same") {
    emulator::device device({}, hopper);
    for (const std::uint64_t seed : {1, 2, 3}) {
        const emulator::options how{.seed = seed, .check = emulator::checking::values_only};
        CHECK(emulator::problem_of(device, is_right<ht::float16, true, false>, how) == "");
    }
}

TEST_CASE("asynchronous words: where they are not, and what is not the device's") {
    CHECK(emulator::device({}, hopper).has_wgmma_code());
    for (const int version : {80, 89, 100, 120}) {
        emulator::device other({}, architecture_of(version));
        CHECK_FALSE(other.has_wgmma_code());
        const std::string problem = emulator::problem_of(other, is_right<ht::bfloat16, false, false>, {});
        CHECK(problem.find(version < 90 ? "has no bulk copies" : "has no wgmma") != std::string::npos);
    }
    emulator::device device({}, hopper);
    const std::string problem = emulator::problem_of(device, is_right<ht::bfloat16, false, false>,
                                                     {.may_touch = [](const void*) { return false; }});
    CHECK(problem.find(" (bulk_copy at") != std::string::npos);
    CHECK(problem.find("touches global memory that is not the device's") != std::string::npos);

    alignas(16) static const ht::bfloat16 x[1024]{};
    CHECK_NOTHROW(device.tile_map(x, 60, 16, 64, 256));
    CHECK_THROWS_AS(device.tile_map(x + 4, 60, 8, 64, 64), emulator::failure);
    CHECK_THROWS_AS(device.tile_map(x, 60, 16, 60, 64), emulator::failure);
    CHECK_THROWS_AS(device.tile_map(x, 60, 16, 64, 257), emulator::failure);
    CHECK_THROWS_AS(device.tile_map(x, 0, 16, 64, 64), emulator::failure);
}

bool has_one_of(const std::string& problem, std::string sentences) {
    for (std::size_t end = 0; end != std::string::npos; sentences.erase(0, end + 1)) {
        end = sentences.find('|');
        if (problem.find(sentences.substr(0, end)) != std::string::npos) return true;
        if (end == std::string::npos) break;
    }
    return false;
}

TEST_CASE("asynchronous words: every planted fault is caught in every schedule, in its own words") {
    emulator::device device({}, hopper);
    for (int number = 1; number < faults; ++number) {
        const auto test = [number](emulator::device& d) {
            product p{integers.a, integers.b};
            multiply<ht::bfloat16, false, false>(d, p, static_cast<fault>(number));
            return true;
        };
        for (int seed = 1; seed <= emulator::seeds; ++seed) {
            const std::string problem = emulator::problem_of(device, test, {.seed = static_cast<std::uint64_t>(seed)});
            CAPTURE(number);
            CAPTURE(seed);
            CAPTURE(problem);
            CHECK(has_one_of(problem, sentences[number]));
            CHECK(problem.rfind("block (", 0) == 0);
        }
    }
}

}  // namespace emulator_asynchronous_faults_tests
