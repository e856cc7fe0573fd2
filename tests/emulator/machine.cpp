// SPDX-License-Identifier: MIT
#include <emulator/machine_state.hpp>
#include <emulator/matrix_sums.hpp>

#include <halftone/exec/simt/architecture.hpp>

namespace halftone::emulator {

// ---- the operations of threads

int thread_access::index() const { return thread_->index; }
grid_shape thread_access::block() const { return thread_->block->index; }

void* thread_access::global(const void* data, extent count, std::size_t size, std::size_t alignment, extent i, int n,
                            operation what, location at) const {
    machine_->maybe_preempt(*thread_);
    if (n > 0 && (i < 0 || i + n > count || reinterpret_cast<std::uintptr_t>(data) % alignment != 0)) {
        machine_->fail(*thread_->block, machine_->who(*thread_, machine_->intern(what, at)), " touches ", n,
                       " from element ", i, " on of a global span of ", count, ", or it is misaligned");
    }
    std::byte* const place = static_cast<std::byte*>(const_cast<void*>(data)) + i * static_cast<extent>(size);
    if (n > 0) machine_->expect_own(*thread_, place, what, at);
    return place;
}

void* thread_access::shared(word offset, word count, std::size_t size, extent i, operation what, location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(what, at);
    block_state& b = *thread_->block;
    if (i < 0 || i >= static_cast<extent>(count)) {
        machine_->fail(b, machine_->who(*thread_, id), " touches element ", i, " of a shared span of ", count);
    }
    const word place = offset + static_cast<word>(i) * static_cast<word>(size);
    machine_->touch(b, machine_->by(*thread_, id), place, size, what == operation::load ? effect::read : effect::write);
    return &b.shared[place];
}

void thread_access::barrier(location at) const {
    machine_->barrier(*thread_, machine_->intern(operation::barrier, at));
}

void thread_access::warp_barrier(location at) const {
    const site_id id = machine_->intern(operation::warp_barrier, at);
    char nothing = 0;
    machine_->together(*thread_, id, nothing, [this](const auto&) {
        warp_state& w = thread_->block->warps[static_cast<std::size_t>(thread_->index / 32)];
        w.last_barrier = ++w.interval;
        if (w.interval > most_barriers)
            machine_->fail(*thread_->block, "more than ", most_barriers, " barriers of a warp");
        machine_->share_clocks(*thread_->block, static_cast<std::size_t>(thread_->index / 32 * 32), 32);
    });
}

void thread_access::shuffle(const void* value, void* result, std::size_t bytes, int mask, int lane, location at) const {
    const site_id id = machine_->intern(operation::shuffle, at);
    if (machine_->harmed(damage::shuffle_misdirected, id)) mask < 0 ? lane = (lane + 1) % 32 : mask /= 2;
    struct operands {
        const void* value;
        void* result;
        int mask, lane;
    } mine{value, result, mask, lane};
    machine_->together(*thread_, id, mine, [&](const auto& of) {
        for (int i = 0; i < 32; ++i) {
            const operands& o = of(i);
            if (o.mask != mask || mask < -1 || mask > 31 || o.lane < 0 || o.lane > 31) {
                machine_->fail(*thread_->block, machine_->who(*thread_, id), ": masks ", mask, " and ", o.mask,
                               " differ, or one leaves the warp");
            }
            std::memcpy(o.result, of(mask < 0 ? o.lane : i ^ mask).value, bytes);
        }
    });
}

bool thread_access::any(bool value, location at) const {
    struct operands {
        bool value, result;
    } mine{value, false};
    machine_->together(*thread_, machine_->intern(operation::any, at), mine, [&](const auto& of) {
        bool all = false;
        for (int i = 0; i < 32; ++i) all = all || of(i).value;
        for (int i = 0; i < 32; ++i) of(i).result = all;
    });
    return mine.result;
}

void thread_access::copy16(word to, word to_count, const void* from, extent from_count, std::size_t size, int valid,
                           location at) const {
    machine_->maybe_preempt(*thread_);
    const site_id id = machine_->intern(operation::async_copy16, at);
    block_state& b = *thread_->block;
    const auto past = reinterpret_cast<std::uintptr_t>(from) % 16;
    if (valid < 0 || valid > 16 / static_cast<int>(size) || past != 0 || to_count < 1) {
        machine_->fail(b, machine_->who(*thread_, id), " copies ", valid, " elements from an address ", past,
                       " past a multiple of 16");
    }
    if (valid > 0 && valid > from_count) {
        machine_->fail(b, machine_->who(*thread_, id), " copies ", valid, " elements of a global span of ", from_count);
    }
    if (valid > 0) machine_->expect_own(*thread_, from, operation::async_copy16, at);
    machine_->touch(b, machine_->by(*thread_, id), to, 16, effect::issue);
    machine_->issue(*thread_, to, from, static_cast<std::size_t>(valid) * size, id);
}
void thread_access::commit() const { ++thread_->groups; }
void thread_access::wait(int allowed, location at) const {
    const bool weakened = machine_->harmed(damage::wait_weakened, machine_->intern(operation::async_wait, at));
    machine_->wait(*thread_, static_cast<word>(allowed) + (weakened ? 1 : 0));
}

vec<word, 4> thread_access::ldmatrix(word row, operation what, location at) const {
    struct operands {
        word row;
        vec<word, 4> result;
    } mine{row, {}};
    const site_id id = machine_->intern(what, at);
    machine_->together(*thread_, id, mine, [&](const auto& of) {
        for (int m = 0; m < 4; ++m) {
            std::uint16_t matrix[8][8];
            int rows_in_bank_group[8] = {},
                most = 0;  // one pass over the 32 banks if the rows are in eight bank groups
            for (int r = 0; r < 8; ++r) {
                const word from = of(8 * m + r).row;
                access reader = machine_->by(*thread_, id);
                reader.thread = static_cast<word>(thread_->index / 32 * 32 + 8 * m + r);
                machine_->touch(*thread_->block, reader, from, 16, effect::read);
                std::memcpy(matrix[r], &thread_->block->shared[from], 16);
                most = std::max(most, ++rows_in_bank_group[from / 16 % 8]);
            }
            machine_->count.bank_conflicts += most - 1;
            const auto pair = [](word low, word high) { return low | high << 16; };
            for (int l = 0; l < 32; ++l) {
                const int g = l / 4, t = 2 * (l % 4);
                of(l).result[m] = what == operation::ldmatrix_x4_trans ? pair(matrix[t][g], matrix[t + 1][g])
                                                                       : pair(matrix[g][t], matrix[g][t + 1]);
            }
        }
    });
    return mine.result;
}

// Lane layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16", "mma.m16n8k8" and "mma.m16n8k32". With g = lane / 4 and
// t = lane % 4, a word holds `in_word` neighbours of A's row g or of B's column g. Products are exact in float.
void thread_access::mma(vec<float, 4>& d, const word* a, const word* b, const matrix_unit& unit, location at) const {
    struct operands {
        vec<float, 4>* d;
        const word *a, *b;
    } mine{&d, a, b};
    const site_id id = machine_->intern(operation::mma, at);
    const int architecture = machine_->option.architecture;
    if (unit.in_word == 4 && !simt::architecture_of(architecture).has_eight_bit_units()) {
        machine_->fail(*thread_->block, machine_->who(*thread_, id), ": an sm_", architecture,
                       " has no matrix units of eight bits");
    }
    const bool truncates = machine_->option.mma == accumulation::truncating;
    const sum_format format = format_of(unit, architecture);
    machine_->together(*thread_, id, mine, [&](const auto& of) {
        constexpr int most = 32;
        float full_a[16][most], full_b[most][8];
        if (unit.in_word == 4) ++machine_->count.eight_bit_mmas;
        const int in_word = unit.in_word, half = unit.depth / 2;
        for (int l = 0; l < 32; ++l) {
            const int g = l / 4, t = in_word * (l % 4);
            float e[4] = {};
            for (int r = 0; r < 4; ++r) {
                unit.a.unpack(of(l).a[r], e);
                for (int i = 0; i < in_word; ++i) full_a[g + 8 * (r % 2)][t + i + half * (r / 2)] = e[i];
            }
            for (int r = 0; r < 2; ++r) {
                unit.b.unpack(of(l).b[r], e);
                for (int i = 0; i < in_word; ++i) full_b[t + i + half * r][g] = e[i];
            }
        }
        const auto sum_at = [&](int row, int n) -> float& { return (*of(row % 8 * 4 + n / 2).d)[row / 8 * 2 + n % 2]; };
        if (!truncates) {
            using vector = float __attribute__((vector_size(16)));
            for (int row = 0; row < 16; ++row) {
                vector sum[2], right[2];
                for (int n = 0; n < 8; ++n) sum[n / 4][n % 4] = sum_at(row, n);
                for (int k = 0; k < unit.depth; ++k) {
                    const float x = full_a[row][k];
                    const vector left{x, x, x, x};
                    std::memcpy(right, full_b[k], sizeof right);
                    sum[0] += left * right[0], sum[1] += left * right[1];
                }
                for (int n = 0; n < 8; ++n) sum_at(row, n) = sum[n / 4][n % 4];
            }
            return;
        }
        multiplied x[16][most], y[8][most];
        for (int k = 0; k < unit.depth; ++k) {
            for (int row = 0; row < 16; ++row)
                x[row][k] = {full_a[row][k], exponent_of(full_a[row][k], unit.a.least_exponent)};
            for (int n = 0; n < 8; ++n) y[n][k] = {full_b[k][n], exponent_of(full_b[k][n], unit.b.least_exponent)};
        }
        for (int row = 0; row < 16; ++row) {
            for (int n = 0; n < 8; ++n) {
                float& sum = sum_at(row, n);
                for (int k = 0; k < unit.depth; k += format.products)
                    sum = add_truncated(sum, &x[row][k], &y[n][k], format.products, format);
            }
        }
    });
}

// ---- the machine

struct machine::stacks {
    stack_pool pool;
};
machine::machine() : stacks_(std::make_unique<stacks>()) {}
machine::~machine() = default;

statistics machine::run(const kernel_call& kernel, const options& option) {
    machine_state state{option, kernel.shape, stacks_->pool, kernel};
    return state.run();
}

}  // namespace halftone::emulator
