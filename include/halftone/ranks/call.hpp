// SPDX-License-Identifier: MIT
/// \file
/// A collective call as a value, which engines compare among the ranks before any bytes move, and the sentences that
/// name ranks in messages.
///
///     const detail::collective_call mine(detail::call_kind::all_gather, "losses", 4);
///     if (!(mine == theirs)) fail<communication_error>(detail::describe_mismatch({0}, theirs, 1, mine));
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The kinds of collective calls. Zero is none of them, so that memory that was never written is no call.
enum class call_kind : std::uint32_t { exchange = 1, all_gather, broadcast, barrier, split };

/// The kind's name, as the communicator's function is spelled.
constexpr const char* name(call_kind kind) {
    constexpr const char* names[] = {"?", "exchange", "all_gather", "broadcast", "barrier", "split"};
    const auto index = static_cast<std::uint32_t>(kind);
    return names[index < 6 ? index : 0];
}

/// What a rank calls. Trivially copyable and without padding: engines send it as bytes.
struct collective_call {
    static constexpr std::size_t longest_name = 47;

    call_kind kind{};
    std::int32_t root = 0;
    std::uint64_t bytes = 0;
    char what[longest_name + 1] = {};  ///< the end is cut off

    collective_call() = default;
    collective_call(call_kind k, const char* values, std::size_t count, int from = 0)
        : kind(k), root(from), bytes(count) {
        for (std::size_t i = 0; i < longest_name && values[i] != '\0'; ++i) what[i] = values[i];
    }

    friend bool operator==(const collective_call& a, const collective_call& b) {
        return a.kind == b.kind && a.root == b.root && a.bytes == b.bytes && std::strcmp(a.what, b.what) == 0;
    }
};
static_assert(sizeof(collective_call) == 64);

/// `all_gather "losses" of 4 bytes`.
inline std::string describe(const collective_call& call) {
    std::string text = sentence(name(call.kind), " \"", call.what, '"');
    if (call.kind == call_kind::barrier || call.kind == call_kind::split) return text;
    text += sentence(" of ", call.bytes, call.bytes == 1 ? " byte" : " bytes");
    if (call.kind == call_kind::broadcast) text += sentence(" from rank ", call.root);
    return text;
}

/// "rank 2", "ranks 0 and 3", "ranks 0, 1 and 3".
inline std::string describe_ranks(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (i != 0) text += i + 1 == ranks.size() ? " and " : ", ";
        text += std::to_string(ranks[i]);
    }
    return text;
}

/// The message of ranks that call different things.
inline std::string describe_mismatch(const std::vector<int>& ranks, const collective_call& call, int other_rank,
                                     const collective_call& other) {
    return sentence("communicator: ", describe_ranks(ranks), ranks.size() == 1 ? " calls " : " call ", describe(call),
                    ", and rank ", other_rank, " calls ", describe(other),
                    "; all ranks call the same functions in the same order, with the same number of bytes");
}
/// 0, 1, ... : the numbers of the ranks of a whole run.
inline std::vector<int> first_numbers(std::size_t count) {
    std::vector<int> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
}
/// The ranks i for which is(i), by their numbers.
template <class Is>
std::vector<int> ranks_where(const std::vector<int>& numbers, const Is& is) {
    std::vector<int> found;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (is(i)) found.push_back(numbers[i]);
    }
    return found;
}
/// The message of ranks that call different things, or "" if `calls`, one of each, are all the same.
inline std::string describe_difference(const std::vector<collective_call>& calls, const std::vector<int>& numbers) {
    const auto other = std::find_if(calls.begin(), calls.end(), [&](const collective_call& c) { return !(c == calls[0]); });
    if (other == calls.end()) return "";
    const std::vector<int> same = ranks_where(numbers, [&](std::size_t i) { return calls[i] == calls[0]; });
    return describe_mismatch(same, calls[0], numbers[static_cast<std::size_t>(other - calls.begin())], *other);
}
/// The message of ranks that have not called what others wait for, in time.
inline std::string describe_missing(const std::vector<int>& missing, const collective_call& call,
                                    std::int64_t milliseconds) {
    return sentence("communicator: ", describe_ranks(missing), missing.size() == 1 ? " has" : " have", " not called ",
                    describe(call), " within ", milliseconds, " ms, for which the others wait");
}
/// The message of a rank that has ended before what others wait for.
inline std::string describe_ended(int rank, const collective_call& call, const std::string& reason) {
    return sentence("communicator: rank ", rank, " has ended before ", describe(call), ": ", reason);
}

/// What a rank gives to communicator::split.
struct split_choice {
    std::int32_t color = 0, key = 0;
};

/// The ranks that gave this color, ordered by key, then by rank.
inline std::vector<int> ranks_of_color(const std::vector<split_choice>& all, int color) {
    std::vector<int> ranks = ranks_where(first_numbers(all.size()), [&](std::size_t i) { return all[i].color == color; });
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        return all[static_cast<std::size_t>(a)].key < all[static_cast<std::size_t>(b)].key;
    });
    return ranks;
}

/// Throws argument_error for a root that is no rank.
inline void expect_root(int root, int size) {
    if (root < 0 || root >= size)
        fail<argument_error>("communicator: broadcast from rank ", root, " among ", size, " ranks");
}

/// Throws argument_error for a color that MPI would not take.
inline void expect_color(int color) {
    if (color < 0) fail<argument_error>("communicator: split: the color is ", color, "; expected 0 or more");
}
/// Throws argument_error for a deadline that is no time to wait, or that clocks cannot add.
inline void expect_deadline(std::chrono::milliseconds deadline) {
    if (deadline.count() < 1 || deadline > std::chrono::hours(24 * 366))
        fail<argument_error>("communicator: a deadline of ", deadline.count(), " ms; expected 1 ms to 1 year");
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
