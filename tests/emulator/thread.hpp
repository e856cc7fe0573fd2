// SPDX-License-Identifier: MIT
/// \file
/// The functions of exec/simt/simt.hpp on the emulated GPU.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <emulator/machine.hpp>

namespace halftone::emulator {

class thread_handle {
  public:
    explicit thread_handle(thread_access access) : access_(access) {}

    int thread() const { return access_.index(); }
    int warp() const { return thread() / 32; }
    int lane() const { return thread() % 32; }
    grid_shape block() const { return access_.block(); }

    template <class T>
    std::remove_const_t<T> load(simt::global_span<T> s, extent i, location at = location::here()) const {
        std::remove_const_t<T> value;
        std::memcpy(static_cast<void*>(&value), place(s, i, operation::load, at), sizeof(T));
        return value;
    }
    template <class T>
    T load(simt::shared_span<T> s, extent i, location at = location::here()) const {
        T value;
        std::memcpy(static_cast<void*>(&value), access_.shared(s.offset, s.count, sizeof(T), i, operation::load, at),
                    sizeof(T));
        return value;
    }
    template <class T>
    void store(simt::global_span<T> s, extent i, std::type_identity_t<T> value, location at = location::here()) const {
        std::memcpy(place(s, i, operation::store, at), static_cast<const void*>(&value), sizeof(T));
    }
    template <class T>
    void store(simt::shared_span<T> s, extent i, std::type_identity_t<T> value, location at = location::here()) const {
        std::memcpy(access_.shared(s.offset, s.count, sizeof(T), i, operation::store, at),
                    static_cast<const void*>(&value), sizeof(T));
    }

    void barrier(location at = location::here()) const { access_.barrier(at); }
    void warp_barrier(location at = location::here()) const { access_.warp_barrier(at); }

    template <class T>
    T shuffle_xor(T value, int mask, location at = location::here()) const {
        T result;
        access_.shuffle(&value, &result, sizeof(T), mask, 0, at);
        return result;
    }
    template <class T>
    T shuffle(T value, int lane, location at = location::here()) const {
        T result;
        access_.shuffle(&value, &result, sizeof(T), -1, lane, at);
        return result;
    }

    bool any(bool value, location at = location::here()) const { return access_.any(value, at); }

    template <class T>
    void async_copy16(simt::shared_span<simt::chunk<T>> to, simt::global_span<const T> from, int valid,
                      location at = location::here()) const {
        access_.copy16(to.offset, to.count, from.data, from.count, sizeof(T), valid, at);
    }
    void async_commit() const { access_.commit(); }
    template <int N>
    void async_wait(simt::constant<N>, location at = location::here()) const {
        access_.wait(N, at);
    }

    template <class T>
    vec<word, 4> ldmatrix_x4(simt::shared_span<simt::chunk<T>> row, location at = location::here()) const {
        return access_.ldmatrix(row.offset, operation::ldmatrix_x4, at);
    }
    template <class T>
    vec<word, 4> ldmatrix_x4_trans(simt::shared_span<simt::chunk<T>> row, location at = location::here()) const {
        return access_.ldmatrix(row.offset, operation::ldmatrix_x4_trans, at);
    }

    template <class T>
    void mma_16816(simt::element<T>, vec<float, 4>& d, vec<word, 4> a, vec<word, 2> b,
                   location at = location::here()) const {
        access_.mma(d, a.value, b.value, {16, 2, operand<T>, operand<T>}, at);
    }
    void mma_1688(simt::element<tfloat32>, vec<float, 4>& d, vec<word, 4> a, vec<word, 2> b,
                  location at = location::here()) const {
        access_.mma(d, a.value, b.value, {8, 1, operand<tfloat32>, operand<tfloat32>}, at);
    }
    template <class A, class B>
    void mma_16832(simt::element<A>, simt::element<B>, vec<float, 4>& d, vec<word, 4> a, vec<word, 2> b,
                   location at = location::here()) const {
        access_.mma(d, a.value, b.value, {32, 4, operand<A>, operand<B>}, at);
    }
    static constexpr bool has_eight_bit_units = true;  // a machine without them reports their use
    word select_bytes(word low, word high, word selector) const {
        word result = 0;
        for (int i = 0; i < 4; ++i) {
            const word number = selector >> 4 * i & 7, from = number < 4 ? low : high;
            result |= (from >> 8 * (number % 4) & 0xff) << 8 * i;
        }
        return result;
    }
    /// PTX does not define the lower bits: here they are set to values that would change a product.
    word round_tf32(word bits) const { return tfloat32(bit_cast<float>(bits)).bits() | 0x1555; }

    static constexpr bool has_wgmma = true;  // a machine without them reports their use
    int warpgroup() const { return thread() / 128; }
    using mbarrier_span = simt::shared_span<simt::mbarrier>;
    void mbarrier_init(mbarrier_span m, int arrivals, location at = location::here()) const {
        access_.mbarrier_init(m, arrivals, at);
    }
    void mbarrier_init_fence(location at = location::here()) const { access_.mbarrier_init_fence(at); }
    void mbarrier_arrive(mbarrier_span m, location at = location::here()) const { access_.mbarrier_arrive(m, at); }
    void mbarrier_expect(mbarrier_span m, word bytes, location at = location::here()) const {
        access_.mbarrier_expect(m, bytes, at);
    }
    void mbarrier_wait(mbarrier_span m, word parity, location at = location::here()) const {
        access_.mbarrier_wait(m, parity, at);
    }
    void bulk_copy(word to, const tile_map& map, int x, int y, mbarrier_span done,
                   location at = location::here()) const {
        access_.bulk_copy(to, map, {x, y}, 2, done, at);
    }
    void bulk_copy(word to, const tile_map& map, int x, int y, int z, int w, mbarrier_span done,
                   location at = location::here()) const {
        access_.bulk_copy(to, map, {x, y, z, w}, 4, done, at);
    }
    void wgmma_fence(location at = location::here()) const { access_.wgmma_fence(at); }
    template <class T, bool A, bool B, int Blocks>
    void wgmma(simt::element<T>, vec<float, 4> (&sums)[Blocks], simt::wgmma_operand<A> a, simt::wgmma_operand<B> b,
               bool keep, location at = location::here()) const {
        static_assert(sizeof(T) == 2 && (Blocks == 8 || Blocks == 16 || Blocks == 24 || Blocks == 32));
        access_.wgmma(sums, Blocks, {16, 2, operand<T>, operand<T>}, tile_operand{a.offset, A}, {b.offset, B}, keep, at);
    }
    template <class T, bool B, int Blocks>
    void wgmma(simt::element<T>, vec<float, 4> (&sums)[Blocks], const vec<word, 4>& a, simt::wgmma_operand<B> b, bool keep,
               location at = location::here()) const {
        static_assert(sizeof(T) == 2 && (Blocks == 8 || Blocks == 16));
        access_.wgmma(sums, Blocks, {16, 2, operand<T>, operand<T>}, a, {b.offset, B}, keep, at);
    }
    void wgmma_commit(location at = location::here()) const { access_.wgmma_commit(at); }
    template <class Values>
    void hold(Values&) const {}
    template <int N>
    void wgmma_wait(simt::constant<N>, location at = location::here()) const {
        access_.wgmma_wait(N, at);
    }
    template <int N, int Blocks>
    void wgmma_wait(simt::constant<N>, vec<float, 4> (&)[Blocks], location at = location::here()) const {
        access_.wgmma_wait(N, at);
    }
    template <class T>
    void stmatrix_x4(simt::shared_span<simt::chunk<T>> row, const vec<word, 4>& values,
                     location at = location::here()) const {
        access_.stmatrix(row.offset, values, at);
    }
    void bulk_store(const tile_map& map, int x, int y, word from, location at = location::here()) const {
        access_.bulk_store(map, {x, y}, 2, from, at);
    }
    void bulk_store(const tile_map& map, int x, int y, int z, int w, word from, location at = location::here()) const {
        access_.bulk_store(map, {x, y, z, w}, 4, from, at);
    }
    void bulk_commit() const { access_.bulk_commit(); }
    template <int N>
    void bulk_wait_read(simt::constant<N>, location at = location::here()) const {
        access_.bulk_wait_read(N, at);
    }
    void proxy_fence(location at = location::here()) const { access_.proxy_fence(at); }
    template <int N>
    void fewer_registers(simt::constant<N>, location at = location::here()) const {
        access_.registers(N, operation::fewer_registers, at);
    }
    template <int N>
    void more_registers(simt::constant<N>, location at = location::here()) const {
        access_.registers(N, operation::more_registers, at);
    }

  private:
    /// How a matrix unit reads words of T.
    template <class T>
    static constexpr matrix_unit::operand operand{
        [](word packed, float* elements) {
            constexpr int bits = 8 * sizeof(T);
            for (int i = 0; i < 32 / bits; ++i)
                elements[i] = T::from_bits(static_cast<decltype(T{}.bits())>(packed >> i * bits % 32));
        },
        number_traits<T>::min_exponent - 1};

    template <class T>
    void* place(const simt::global_span<T>& s, extent i, operation what, location at) const {
        return access_.global(s.data, s.count, sizeof(T), alignof(T), i, 1, what, at);
    }

    thread_access access_;
};
static_assert(simt::thread_handle<thread_handle>);

/// See exec/simt/simt.hpp.
template <class Part>
auto run_part(thread_handle simt, const Part& part) -> decltype(part(simt)) {
    return part(simt);
}

/// The call of a kernel that the machine runs; the kernel must outlive it.
template <class Kernel>
kernel_call call_of(const Kernel& kernel) {
    static_assert(Kernel::threads % 32 == 0 && Kernel::threads <= 1024);
    static_assert(std::is_trivially_copyable_v<Kernel> && alignof(Kernel) <= alignof(std::max_align_t),
                  "a GPU takes the arguments of a launch as bytes");
    return {{kernel.grid(), Kernel::threads, Kernel::shared_bytes},
            [](const void* k, thread_access access) { (*static_cast<const Kernel*>(k))(thread_handle(access)); },
            &kernel,
            sizeof kernel};
}

}  // namespace halftone::emulator
