// SPDX-License-Identifier: MIT
/// \file
/// Sums of several ranks, with bits that depend on neither the engine nor its topology.
///
///     ht::reduce_scatter<ht::bfloat16>(device, comm, "h.0", gradients, mine);     // each rank its piece of the sum
///     ht::all_reduce<ht::bfloat16>(device, comm, "h.0", gradients);               // all ranks the whole sum
///     auto sum = ht::begin_reduce_scatter<ht::bfloat16>(device, comm, "h.0", gradients, mine);
///     backward(device);                                                           // meanwhile the bytes travel
///     sum.wait();                                                                 // adds them
///     const double loss = ht::all_reduce_sum(comm, "loss", own_loss) / comm.size();
///
/// Numeric contract: each rank rounds its values once to Wire, the type that travels, and each receives the pieces of all
/// ranks as they are. It widens them to float and adds them by the pairwise tree of the ranks' numbers, ((0 + 1) + (2 + 3))
/// + 4 for five; the sum is rounded once to Wire and then to the type of the result: so reduce_scatter and all_reduce
/// give the same bits on all ranks. Everything is in double if Wire or the values are. A term passes through at most
/// ceil(log2(ranks)) additions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/ranks/communicator.hpp>
#include <halftone/tensor/view.hpp>

#define HALFTONE_BODY <halftone/ranks/add_ranks.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// to[i] = from[i], rounded to To; zero where `from` has ended.
template <class From, class To>
struct round_for_wire {
    simt::global_span<const From> from;
    simt::global_span<To> to;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        using wide = kernel::statistic<From, To>;
        const auto x = i < from.count ? static_cast<wide>(thread.load(from, i)) : wide(0);
        thread.store(to, i, static_cast<To>(x));
    }
};

/// sum[i] = the sum over ranks of pieces[rank][i], by the pairwise tree.
template <class Wide, class Wire, class T>
struct add_ranks {
    simt::global_span<const Wire> pieces;  // (ranks, count)
    simt::global_span<T> sum;              // (count)
    int ranks;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        constexpr int levels = 13;  // 4,096 ranks
        // partial[k]: of 2^k ranks. The loops are unrolled, so that a GPU keeps it in registers.
        Wide partial[levels] = {};
        for (int rank = 0; rank < ranks; ++rank) {
            auto x = static_cast<Wide>(thread.load(pieces, rank * sum.count + i));
            HALFTONE_UNROLL for (int level = 0; level < levels; ++level) {
                if ((rank >> level & 1) == 0) {
                    partial[level] = x;
                    break;
                }
                x = partial[level] + x;
            }
        }
        Wide total{};  // the ranks that have no partner yet, the last ones first
        bool has_begun = false;
        HALFTONE_UNROLL for (int level = 0; level < levels; ++level) {
            if ((ranks >> level & 1) == 0) continue;
            total = has_begun ? partial[level] + total : partial[level];
            has_begun = true;
        }
        thread.store(sum, i, static_cast<T>(static_cast<Wide>(static_cast<Wire>(total))));
    }
};

/// Whether the CPU's vectors, which are of floats, hold numbers of these types.
template <class... T>
inline constexpr bool are_in_vectors = (contains<float, T> && ...);

/// Rounds `from` to `to`, which may be longer: the rest is zero.
template <class Device, class From, class To>
void round_on(Device& device, const From* from, extent count, To* to, extent length) {
    if constexpr (std::is_same_v<Device, cpu> && are_in_vectors<From, To>) {
        kernel::convert<cpu>::run(device, const_view<From, 1>(from, {count}), view<To, 1>(to, {count}));
        device.fill(to + count, length - count, static_cast<To>(0.0f));
    } else {
        kernel::fp64::for_each(device, length, 1, round_for_wire<From, To>{{from, count}, {to, length}});
    }
}
/// The sum of the ranks' pieces, in Wide.
template <class Wide, class Device, class Wire, class T>
void add_on(Device& device, int ranks, const Wire* pieces, T* sum, extent count) {
    if constexpr (std::is_same_v<Device, cpu> && std::is_same_v<Wide, float> && are_in_vectors<Wire, T>) {
        const auto body = device.select(HALFTONE_EACH_SET(add_ranks<Wire, T>));
        const kernel::row_partition partition = kernel::partition_rows(count, ranks);
        device.parallel_for(partition.count, [&](extent piece) {
            const extent first = partition.begin(piece);
            body(partition.rows_of(piece), ranks, pieces + first, count, sum + first);
        });
    } else {
        kernel::fp64::for_each(device, count, ranks,
                               add_ranks<Wide, Wire, T>{{pieces, count * ranks}, {sum, count}, ranks});
    }
}

/// The memory of a reduction: the caller's, or its own.
class wire_memory {
  public:
    wire_memory(memory_resource& source, std::size_t bytes, std::span<std::byte> given) {
        if (given.empty()) {
            own_ = buffer(source, bytes, memory_kind::workspace);
            data_ = own_.data();
        } else {
            if (given.size() < bytes)
                fail<argument_error>("reduce_scatter: ", given.size(), " bytes of memory are given; expected ", bytes);
            data_ = given.data();
        }
    }
    std::byte* data() const { return data_; }

  private:
    buffer own_;
    std::byte* data_ = nullptr;
};

/// The elements of a rank's piece of that many, the same on all ranks.
inline extent piece_of(extent count, int ranks) { return ceil_div(count, ranks); }

}  // namespace detail

/// The bytes that reduce_scatter or all_reduce of `count` values of a rank use beside them; these may be given.
template <number Wire>
std::size_t reduction_bytes(const communicator& comm, extent count) {
    const auto piece = static_cast<std::size_t>(detail::piece_of(count, comm.size()));
    return 2 * round_up(piece * static_cast<std::size_t>(comm.size()) * sizeof(Wire), block_alignment);
}

/// A reduce_scatter that has begun. Its views must stay as they are until wait() has returned. Without a call of wait()
/// the destructor waits for the bytes, and adds nothing.
template <class Wire, class T, class Device>
class pending_sum {
  public:
    pending_sum(Device& device, communicator& comm, const char* what, const T* values, extent count, T* mine,
                extent piece, std::span<std::byte> memory)
        : device_(&device),
          ranks_(comm.size()),
          piece_(piece),
          mine_(mine),
          memory_(device.memory(), reduction_bytes<Wire>(comm, count), memory) {
        const extent all = piece * ranks_;
        const void* send = values;
        received_ = reinterpret_cast<Wire*>(memory_.data() + reduction_bytes<Wire>(comm, count) / 2);
        if (!std::is_same_v<Wire, T> || all != count) {
            auto* const rounded = reinterpret_cast<Wire*>(memory_.data());
            detail::round_on(device, values, count, rounded, all);
            send = rounded;
        }
        exchange_ = comm.begin_exchange(what, send, received_, static_cast<std::size_t>(piece) * sizeof(Wire));
    }
    pending_sum(pending_sum&&) = default;
    pending_sum& operator=(pending_sum&&) = delete;

    /// Whether all bytes have arrived, so that wait() does not wait.
    bool is_done() const { return exchange_.is_done(); }
    /// Waits for the bytes and adds them. Throws communication_error.
    void wait() { wait_into(mine_); }

    /// Waits for the bytes and stores their sum in other memory, as all_reduce needs it. Throws communication_error.
    template <class To>
    void wait_into(To* sum) {
        if (device_ == nullptr) return;
        exchange_.wait();
        detail::add_on<kernel::statistic<Wire, T>>(*std::exchange(device_, nullptr), ranks_,
                                                   static_cast<const Wire*>(received_), sum, piece_);
    }

  private:
    Device* device_;
    int ranks_;
    extent piece_;
    T* mine_;
    detail::wire_memory memory_;
    Wire* received_ = nullptr;
    pending exchange_;  // the last member: its destructor waits before the memory is freed
};

/// Begins a reduce_scatter. values: comm.size() pieces of equal length; mine: one piece, which may be this rank's piece of
/// `values` if Wire differs from T. `memory`: the device's, of reduction_bytes; empty: it is allocated.
template <number Wire, class Device, class Values, class Mine>
auto begin_reduce_scatter(Device& device, communicator& comm, const char* what, const Values& values, const Mine& mine,
                          std::span<std::byte> memory = {}) {
    const auto from = as_view(values);
    const auto to = as_view(mine);
    using T = std::remove_const_t<std::remove_pointer_t<decltype(to.data())>>;
    if (from.size() != to.size() * comm.size() || !from.is_contiguous() || !to.is_contiguous()) {
        fail<shape_error>("reduce_scatter: ", what, ": values are ", from.shape(), ", the piece is ", to.shape(),
                          "; expected ", comm.size(), " contiguous pieces");
    }
    return pending_sum<Wire, T, Device>(device, comm, what, from.data(), from.size(), to.data(), to.size(), memory);
}
/// mine = this rank's piece of the sum over ranks of `values`; see begin_reduce_scatter. Throws shape_error for values
/// that are not comm.size() pieces, and communication_error.
template <number Wire, class Device, class Values, class Mine>
void reduce_scatter(Device& device, communicator& comm, const char* what, const Values& values, const Mine& mine,
                    std::span<std::byte> memory = {}) {
    begin_reduce_scatter<Wire>(device, comm, what, values, mine, memory).wait();
}

/// An all_reduce that has begun. The values must stay as they are until wait() has returned.
template <class Wire, class T, class Device>
class pending_all_reduce {
  public:
    pending_all_reduce(Device& device, communicator& comm, const char* what, T* values, extent count,
                       std::span<std::byte> memory)
        : device_(&device),
          comm_(&comm),
          what_(what),
          values_(values),
          count_(count),
          piece_(detail::piece_of(count, comm.size())),
          memory_(device.memory(), reduction_bytes<Wire>(comm, count), memory),
          sum_(device, comm, what, values, count, nullptr, piece_,
               {memory_.data(), reduction_bytes<Wire>(comm, count)}) {}
    pending_all_reduce(pending_all_reduce&&) = default;
    pending_all_reduce& operator=(pending_all_reduce&&) = delete;

    /// Whether all bytes that are under way have arrived.
    bool is_done() const { return has_gathered_ ? gather_.is_done() : sum_.is_done(); }
    /// The first half: waits for the pieces, adds them and begins to gather the sums, a collective of the name `what` with
    /// ".sum" that all ranks must begin at the same place among their calls. wait() does it if nobody did.
    void gather(communicator& comm) {
        if (std::exchange(has_gathered_, true)) return;
        // What was sent has been read, so its memory takes the sums.
        gathered_ = is_in_place() ? reinterpret_cast<Wire*>(values_) : reinterpret_cast<Wire*>(memory_.data());
        Wire* const mine = gathered_ + piece_ * comm.rank();
        sum_.wait_into(mine);
        gather_ = comm.begin_all_gather((std::string(what_) + ".sum").c_str(), mine, gathered_,
                                        static_cast<std::size_t>(piece_) * sizeof(Wire));
    }
    void gather() { gather(*comm_); }
    /// Returns when `values` are the sums. Throws communication_error.
    void wait() {
        if (device_ == nullptr) return;
        gather();
        gather_.wait();
        Device& device = *std::exchange(device_, nullptr);
        if (!is_in_place()) detail::round_on(device, gathered_, count_, values_, count_);
    }

  private:
    bool is_in_place() const { return std::is_same_v<Wire, T> && piece_ * comm_->size() == count_; }

    Device* device_;
    communicator* comm_;
    const char* what_;
    T* values_;
    extent count_, piece_;
    bool has_gathered_ = false;
    Wire* gathered_ = nullptr;
    detail::wire_memory memory_;
    pending_sum<Wire, T, Device> sum_;
    pending gather_;
};

/// Begins an all_reduce. `values` are contiguous, of any shape and any number. `what` must stay until wait() has returned.
/// `memory`: the device's, of reduction_bytes; empty: it is allocated.
template <number Wire, class Device, class Values>
auto begin_all_reduce(Device& device, communicator& comm, const char* what, const Values& values,
                      std::span<std::byte> memory = {}) {
    const auto all = as_view(values);
    using T = std::remove_const_t<std::remove_pointer_t<decltype(all.data())>>;
    if (!all.is_contiguous()) fail<shape_error>("all_reduce: ", what, ": values are not contiguous");
    return pending_all_reduce<Wire, T, Device>(device, comm, what, all.data(), all.size(), memory);
}
/// values = the sum over ranks of `values`, the same bits on all ranks; see begin_all_reduce. Throws shape_error and
/// communication_error.
template <number Wire, class Device, class Values>
void all_reduce(Device& device, communicator& comm, const char* what, const Values& values,
                std::span<std::byte> memory = {}) {
    begin_all_reduce<Wire>(device, comm, what, values, memory).wait();
}

/// The values of all ranks, in their order: each a trivially copyable value in host memory.
template <class T>
std::vector<T> gather_values(communicator& comm, const char* what, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(comm.size()));
    comm.all_gather(what, &value, all.data(), sizeof(T));
    return all;
}
/// The sum over ranks of a value in host memory, in its own type, by the pairwise tree: the same on all ranks.
template <class T>
T all_reduce_sum(communicator& comm, const char* what, const T& value) {
    std::vector<T> all = gather_values(comm, what, value);
    for (std::size_t step = 1; step < all.size(); step *= 2) {
        for (std::size_t i = 0; i + step < all.size(); i += 2 * step) all[i] = static_cast<T>(all[i] + all[i + step]);
    }
    return all[0];
}
/// The largest of the ranks' values in host memory; a NaN, if there is one.
template <class T>
T all_reduce_max(communicator& comm, const char* what, const T& value) {
    const std::vector<T> all = gather_values(comm, what, value);
    T largest = all[0];
    for (const T& x : all) {
        if (largest < x || x != x) largest = x;
    }
    return largest;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
