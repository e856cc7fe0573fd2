// SPDX-License-Identifier: MIT
/// \file
/// A call that succeeds on all ranks, or throws on all: for files, which may be there for some ranks only.
///
///     detail::on_all_ranks(comm, "checkpoint.read", [&] { read(); });        // "checkpoint: rank 1: ..." on the others
#pragma once

#include <cstring>
#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include <halftone/io/io_error.hpp>
#include <halftone/ranks/reduce.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What a rank tells the others of a call that it made.
struct rank_outcome {
    enum : int { done, other, file, checkpoint } kind = done;  ///< the type of its exception
    char message[244]{};                                       ///< the beginning of it
};

/// Calls f on this rank, and returns if no rank's call has thrown. Otherwise throws on all: on the rank itself what its call
/// has thrown, on others an exception that names that rank, behind what stands in `what` before a point. All are io_errors, or on
/// no rank.
template <class F>
void on_all_ranks(communicator& comm, const char* what, const F& f) {
    rank_outcome mine;
    std::exception_ptr thrown;
    const auto note = [&](decltype(mine.kind) kind, const char* message) {
        mine.kind = kind;
        std::strncpy(mine.message, message, sizeof mine.message - 1);
        thrown = std::current_exception();
    };
    try {
        f();
    } catch (const communication_error&) {
        throw;  // the others cannot be told
    } catch (const checkpoint_error& e) {
        note(rank_outcome::checkpoint, e.what());
    } catch (const io_error& e) {
        note(rank_outcome::file, e.what());
    } catch (const std::exception& e) {
        note(rank_outcome::other, e.what());
    }
    const std::vector<rank_outcome> all = gather_values(comm, what, mine);
    std::size_t worst = 0;
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
        const bool is_worse = all[worst].kind == rank_outcome::done || all[rank].kind < all[worst].kind;
        if (all[rank].kind != rank_outcome::done && is_worse) worst = rank;
    }
    const rank_outcome& o = all[worst];
    if (o.kind == rank_outcome::done) return;
    if (thrown && (o.kind == rank_outcome::other) == (mine.kind == rank_outcome::other)) std::rethrow_exception(thrown);
    const std::string text = sentence(std::string(what, std::strcspn(what, ".")), ": rank ", worst, ": ",
                                      std::string(o.message, strnlen(o.message, sizeof o.message)));
    if (o.kind == rank_outcome::checkpoint) throw checkpoint_error(text);
    if (o.kind == rank_outcome::file) throw io_error(text);
    throw state_error(text);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
