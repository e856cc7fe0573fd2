// SPDX-License-Identifier: MIT
/// \file
/// The options of a data loader (data_loader.hpp), its position, and its errors.
///
///     ht::loader_options options{.batch_size = 64, .last = ht::last_batch::drop, .num_workers = 2, .seed = 1};
///     const ht::loader_position at = loader.position();                   // a few numbers, to be saved
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include <halftone/data/data_error.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The order of the samples in an epoch.
enum class row_order {
    shuffled,  ///< a random one for each epoch (shuffle.hpp)
    in_order,  ///< 0, 1, 2, ...
};

/// What happens to the samples at the end of an epoch that do not fill a batch.
enum class last_batch {
    keep,  ///< they are a smaller batch
    drop,  ///< they are left out of this epoch; others will be in the next
};

/// How a data loader makes batches. Names are those of PyTorch's DataLoader and DistributedSampler.
struct loader_options {
    extent batch_size = 1;            ///< samples in a batch of all ranks together
    row_order order = row_order::shuffled;  ///< a stream has its own order
    last_batch last = last_batch::keep;
    int num_workers = 0;              ///< threads that make batches in the background; 0: next() makes them
    int prefetch_factor = 2;          ///< batches per worker that are made ahead
    /// If not 0: the samples of this many consecutive batches are sorted by length, and the batches that result are
    /// shuffled, so that a batch needs little padding. The source has length(index).
    extent bucket_batches = 0;
    std::uint64_t seed = 0;           ///< of the order
    int rank = 0, world_size = 1;     ///< which equal part of each batch this process gets
};

/// A point between two batches of a run. With it a loader continues with the same remaining samples in the same order,
/// whatever its numbers of workers and ranks. It has the options that this order depends on: within an epoch a loader of others
/// would give some samples twice, and others not at all.
struct loader_position {
    std::uint64_t seed = 0;
    std::uint32_t epoch = 0;
    extent rows = 0;   ///< samples of the epoch that were handed out, to all ranks together
    extent size = 0;   ///< samples of the source; 0 for a stream
    row_order order = row_order::shuffled;
    extent bucket_batches = 0;
    extent batch_size = 0;  ///< 0 without bucket_batches: batches of any size have the same order

    friend bool operator==(const loader_position&, const loader_position&) = default;

    /// Calls f(name, field) for each field, for a checkpoint (io/fields.hpp).
    static void visit_fields(auto& self, auto&& f) {
        f("seed", self.seed), f("epoch", self.epoch), f("rows", self.rows), f("size", self.size);
        f("order", self.order), f("bucket_batches", self.bucket_batches), f("batch_size", self.batch_size);
    }
};

/// An exception that a source, a transform or a collate function threw.
struct sample_error : data_error {
    sample_error(const std::string& text, extent which, std::uint32_t of_epoch, std::exception_ptr why)
        : data_error(text), index(which), epoch(of_epoch), cause(std::move(why)) {}

    extent index;              ///< the sample; for a collate function the first one of its batch
    std::uint32_t epoch;
    std::exception_ptr cause;  ///< the exception itself
};

/// A sample's place, for transforms that draw random numbers: a function of these three (number/philox.hpp) is the same
/// whatever worker or rank calls it.
struct sample_place {
    std::uint64_t seed = 0;
    std::uint32_t epoch = 0;
    extent index = 0;  ///< of the sample in its source; of a stream, its number in the epoch
};

namespace detail {

/// What a position says of the order of an epoch of `size` samples: "shuffled, sorted by length in 4 batches of 8".
inline std::string order_text(const loader_position& at) {
    std::string text = at.order == row_order::shuffled ? "shuffled" : "in order";
    if (at.bucket_batches != 0)
        text += sentence(", sorted by length in ", at.bucket_batches, " batches of ", at.batch_size);
    return text;
}

/// Throws argument_error, naming the first option outside its range.
inline void check(const loader_options& o) {
    const auto at_least = [](const char* field, extent value, extent least) {
        if (value < least)
            fail<argument_error>("loader_options: ", field, " is ", value, "; expected ", least, " or more");
    };
    at_least("batch_size", o.batch_size, 1);
    at_least("num_workers", o.num_workers, 0);
    at_least("prefetch_factor", o.prefetch_factor, 1);
    at_least("bucket_batches", o.bucket_batches, 0);
    at_least("world_size", o.world_size, 1);
    if (o.rank < 0 || o.rank >= o.world_size) {
        fail<argument_error>("loader_options: rank is ", o.rank, "; expected 0 to world_size - 1, which is ",
                             o.world_size - 1);
    }
    if (o.num_workers > 1024 || o.prefetch_factor > 1024) {
        fail<argument_error>("loader_options: ", o.num_workers, " workers with ", o.prefetch_factor,
                             " batches each; expected 1024 at most");
    }
    if (o.batch_size % o.world_size != 0) {
        fail<argument_error>("loader_options: batch_size is ", o.batch_size, ", of all ranks together; expected a "
                             "multiple of world_size, which is ", o.world_size);
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
