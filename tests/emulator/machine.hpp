// SPDX-License-Identifier: MIT
/// \file
/// An emulated GPU that runs kernels on the host, for tests. There is one fiber for each CUDA thread, several blocks are resident
/// at once, and a seed decides everything that a GPU leaves open:
///   - which thread runs next, and how far one warp may run ahead of the others;
///   - when an asynchronous copy completes: at any time between its issue and its wait; a bulk copy row by row.
/// Behaviour that is undefined on a GPU throws an exception with one sentence: an access out of bounds or misaligned; a read of
/// shared memory that no thread wrote; accesses of two threads to the same byte of it, one of them a write, without a barrier
/// between them; any access to a byte of an asynchronous copy before its wait; threads that diverge at a barrier or at a
/// warp-wide instruction.
///
/// Its matrix units round each addition to nearest, or, if requested, add like those of the GPU that it imitates (`accumulation`).
///
/// mbarriers also order memory accesses, from the release of an arrival to the acquire of a wait, for each thread. Bulk copies and
/// products of warpgroups run asynchronously until a thread waits for them (asynchronous.hpp).
///
/// It cannot show weak memory order, races on global memory, or occupancy.
///
///     emulator::machine m;
///     m.run(call_of(kernel), {.seed = 7});      // thread.hpp
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>

#include <halftone/exec/simt/simt.hpp>

namespace halftone::emulator {

using simt::grid_shape, simt::vec, simt::word;

struct failure : std::runtime_error {
    using runtime_error::runtime_error;
};

enum class checking { values_only, races_too };

/// A damage that the machine does to a running kernel at the n-th possible position of its source, without changing the source. If
/// no test detects it, a test is missing, or a barrier is not needed. A wait for an mbarrier counts as a barrier, a wait for
/// products of a warpgroup as a wait for copies.
enum class damage { none, barrier_removed, wait_weakened, shuffle_misdirected };
inline constexpr int damages = 4;

/// How matrix units add. `nearest`: one product after the other, each sum rounded to nearest. `truncating`: as measured on GPUs of
/// options::architecture. The exact products of several consecutive k and the sum so far are truncated a certain number of bits
/// below the exponent of the largest one, then added exactly, and the sum is truncated again:
///
/// | architecture        | products at a time            | bits kept behind the largest | of the sum |
/// | ------------------- | ----------------------------- | ---------------------------- | ---------- |
/// | 80 to 89            | 8 of 16 bits, 4 of tfloat32   | 24                           | 23         |
/// | 89, of eight bits   | 16                            | 13                           | 13         |
/// | 90 and later        | 16, 8 of tfloat32             | 25                           | 23         |
/// | 120, of eight bits  | 32                            | 25                           | 23         |
///
/// Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021; Xie et al., "MMA-Sim", 2025; of
/// eight bits, whose sums have 14 bits on Ada and Hopper: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section
/// 3.5.2; Zhang et al., "SageAttention2", 2024.
enum class accumulation { nearest, truncating };

struct options {
    std::uint64_t seed = 1;
    checking check = checking::races_too;
    accumulation mma = accumulation::nearest;
    int architecture = 80;  ///< the architecture of its matrix units; set by the device
    damage harm = damage::none;
    int harmed_site = 0;
    int resident_blocks = 3;
    std::function<bool(const void*)> may_touch{};  ///< which global memory may be accessed; without it, all memory of spans
};

struct statistics {
    long blocks = 0, switches = 0, bank_conflicts = 0, eight_bit_mmas = 0, warpgroup_mmas = 0;
    int sites[damages] = {};  ///< for each damage, the places in the kernel's source where it can be done
};

struct launch_shape {
    grid_shape grid{};
    int threads = 32;
    std::size_t shared_bytes = 0;
};

/// The position of a call in the kernel's source; a default argument sets it, so that kernels need not.
struct location {
    const char* file;
    int line;
    HALFTONE_HD static constexpr location here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

enum class operation : std::uint8_t {
    load,
    store,
    async_copy16,
    async_wait,
    ldmatrix_x4,
    ldmatrix_x4_trans,
    shuffle,
    mma,
    barrier,
    warp_barrier,
    any,
    mbarrier_init,
    mbarrier_init_fence,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_wait,
    bulk_copy,
    wgmma,
    wgmma_fence,
    wgmma_commit,
    wgmma_wait,
    fewer_registers,
    more_registers,
    stmatrix_x4,
    bulk_store,
    bulk_wait_read,
    proxy_fence
};

/// The operands of a matrix unit: `depth` of k, the number of elements in a word, and how an operand reads them.
struct matrix_unit {
    struct operand {
        void (*unpack)(word packed, float* elements);
        int least_exponent;  ///< of the normal numbers
    };
    int depth, in_word;
    operand a, b;
};

using site_number = std::uint16_t;

/// simt::wgmma_operand, without its type.
struct tile_operand {
    word offset;
    bool is_outer;
    bool operator==(const tile_operand&) const = default;
};

/// Coordinates in a tensor of four axes, the first of which is contiguous.
struct box_coordinates {
    int x, y, z = 0, w = 0;
};

/// A tensor in global memory that bulk copies take or fill boxes of, as a CUtensorMap describes it to a GPU: `outer` lines of
/// `inner` elements of 2 or 4 bytes, `leading` apart, in boxes of 128 bytes x box_outer; or several such matrices.
struct tile_map {
    const void* data;
    extent inner, outer, leading;
    int box_outer;
    int element_bytes = 2;
    extent others[2] = {1, 1}, distances[2] = {8, 8};  ///< of a tensor of four axes
    int axes = 2;

    int box_inner() const { return 128 / element_bytes; }
    /// Throws for maps that cuTensorMapEncodeTiled rejects.
    bool can_be() const {
        const auto is_axis = [&](extent n, extent distance) {
            return n > 0 && n <= extent{1} << 32 && distance > 0 && distance * element_bytes % 16 == 0 &&
                   distance * element_bytes < extent{1} << 40;
        };
        return simt::is_aligned(data, 16) && is_axis(outer, leading) && is_axis(others[0], distances[0]) &&
               is_axis(others[1], distances[1]) && inner > 0 && inner <= extent{1} << 32 && box_outer > 0 && box_outer <= 256;
    }
    /// The number of the first element of a line, or -1 if the tensor has no such line.
    extent line(const box_coordinates& p, int number) const {
        const extent y = extent{p.y} + number;
        if (y < 0 || y >= outer || p.z < 0 || p.z >= others[0] || p.w < 0 || p.w >= others[1]) return -1;
        return y * leading + p.z * distances[0] + p.w * distances[1];
    }
};

struct thread_state;
struct machine_state;

/// The functions that a thread's Simt operations call, independent of element types.
class thread_access {
  public:
    thread_access(machine_state& m, thread_state& t) : machine_(&m), thread_(&t) {}

    int index() const;
    grid_shape block() const;

    /// The address in global memory of n elements of `size` bytes, from element i of a span on, to be read or written.
    void* global(const void* data, extent count, std::size_t size, std::size_t alignment, extent i, int n,
                 operation what, location at) const;
    /// An address in the block's shared memory.
    void* shared(word offset, word count, std::size_t size, extent i, operation what, location at) const;

    void barrier(location at) const;
    void warp_barrier(location at) const;
    /// result = the value of lane (mine ^ mask), or of lane `lane` where mask is -1.
    void shuffle(const void* value, void* result, std::size_t bytes, int mask, int lane, location at) const;
    /// Whether the condition is true in one of the warp's lanes.
    bool any(bool value, location at) const;
    void copy16(word to, word to_count, const void* from, extent from_count, std::size_t size, int valid,
                location at) const;
    void commit() const;
    void wait(int allowed, location at) const;
    vec<word, 4> ldmatrix(word row, operation what, location at) const;

    /// Fragments of one lane; the machine gathers them into matrices.
    void mma(vec<float, 4>& d, const word* a, const word* b, const matrix_unit& unit, location at) const;

    void mbarrier_init(simt::shared_span<simt::mbarrier> m, int arrivals, location at) const;
    void mbarrier_init_fence(location at) const;
    void mbarrier_arrive(simt::shared_span<simt::mbarrier> m, location at) const;
    void mbarrier_expect(simt::shared_span<simt::mbarrier> m, word bytes, location at) const;
    void mbarrier_wait(simt::shared_span<simt::mbarrier> m, word parity, location at) const;
    void bulk_copy(word to, const tile_map& map, const box_coordinates& from, int axes, simt::shared_span<simt::mbarrier> done,
                   location at) const;
    void wgmma_fence(location at) const;
    /// The sums of one thread, for `blocks` neighbouring blocks of 8 columns.
    void wgmma(vec<float, 4>* sums, int blocks, const matrix_unit& unit, const tile_operand& a, const tile_operand& b,
               bool keep, location at) const;
    /// With a in registers, four words a thread.
    void wgmma(vec<float, 4>* sums, int blocks, const matrix_unit& unit, const vec<word, 4>& a, const tile_operand& b,
               bool keep, location at) const;
    void wgmma_commit(location at) const;
    void wgmma_wait(int allowed, location at) const;
    /// fewer_registers or more_registers.
    void registers(int n, operation what, location at) const;

    void stmatrix(word row, const vec<word, 4>& values, location at) const;
    void bulk_store(const tile_map& map, const box_coordinates& to, int axes, word from, location at) const;
    void bulk_commit() const;
    void bulk_wait_read(int allowed, location at) const;
    void proxy_fence(location at) const;

  private:
    void wgmma(vec<float, 4>* sums, int blocks, const matrix_unit& unit, const tile_operand& a, const vec<word, 4>* a_words,
               const tile_operand& b, bool keep, site_number id) const;

    machine_state* machine_;
    thread_state* thread_;
};

/// A type-erased kernel.
struct kernel_call {
    launch_shape shape;
    void (*call)(const void* kernel, thread_access thread);  ///< runs one thread from beginning to end
    const void* kernel;
    std::size_t bytes;  ///< of the kernel
};

/// Runs one launch after another; keeps the stacks of its fibers.
class machine {
  public:
    machine();
    ~machine();
    machine(const machine&) = delete;
    machine& operator=(const machine&) = delete;

    /// Throws failure, and what a kernel throws.
    statistics run(const kernel_call& kernel, const options& option = {});

  private:
    struct stacks;
    std::unique_ptr<stacks> stacks_;
};

}  // namespace halftone::emulator
