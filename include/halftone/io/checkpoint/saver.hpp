// SPDX-License-Identifier: MIT
/// \file
/// Saves checkpoints beside the training loop: a thread copies the parameters and moments while the next forward and
/// backward passes run, and then writes them.
///
///     ht::checkpoint_saver saver("run");
///     for (...) {
///         ...
///         optimizer.step(grads);               // waits for the copy, should it still be under way
///         if (step % 100 == 0) saver.save({.step = step, .save_total_limit = 2}, model, optimizer, scaler, tape);
///     }
///     saver.wait();                            // throws if the last one could not be written
///
/// What a step's forward pass may change is copied before save() returns: counters, random states, histories, layers'
/// states. The rest changes only in optimizers' steps, assignments and loads, which wait for the copy
/// (memory/read_latch.hpp); who writes to a master by hand calls the store's await_readers() before. The copy takes as
/// many bytes of host memory as the checkpoint, which are kept for the next one. On a GPU save() copies everything to the
/// host itself. On Linux the thread writes with a lower priority than the threads that compute.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <halftone/io/checkpoint/part.hpp>
#include <halftone/io/checkpoint/write.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// Adds a tensor to what is written; `read` gives its bytes.
template <class Read>
void add_tensor(part_contents& c, const part_tensor& t, const Read& read) {
    c.tensors.push_back({t.name, t.type, t.shape, read});
    if (!t.own.empty()) c.metadata[number_key(t.name)] = t.own;
}

/// The contents of the parts as they are now, read piece by piece while they are written.
inline std::vector<part_contents> contents_of(const std::vector<checkpoint_part>& parts) {
    std::vector<part_contents> contents;
    for (const checkpoint_part& part : parts) {
        part_contents c{.name = part.name, .state = part.state(), .tensors = {}};
        for (const part_tensor& t : part.tensors) add_tensor(c, t, t.read);
        contents.push_back(std::move(c));
    }
    return contents;
}

/// A copy of the parts' tensors, whose memory is used again.
class snapshot {
  public:
    /// Allocates memory; what is not steady, or not in host memory, is copied at once.
    std::vector<part_contents> begin(const std::vector<checkpoint_part>& parts) {
        std::vector<part_contents> contents;
        later_.clear();
        std::size_t used = 0;
        for (const checkpoint_part& part : parts) {
            part_contents c{.name = part.name, .state = part.state(), .tensors = {}};
            for (const part_tensor& t : part.tensors) {
                std::byte* const to = room(used++, t.bytes);
                if (t.is_steady && part.is_in_host_memory) {
                    later_.push_back({t.read, to, t.bytes});
                } else {
                    t.read(to, 0, t.bytes);
                }
                add_tensor(c, t, [to](std::byte* out, std::size_t first, std::size_t count) {
                    if (count != 0) std::memcpy(out, to + first, count);
                });
            }
            contents.push_back(std::move(c));
        }
        return contents;
    }
    /// Copies the rest.
    void finish() const {
        constexpr std::size_t piece = std::size_t{1} << 20;
        for (const rest& r : later_) {
            for (std::size_t done = 0; done < r.bytes; done += piece)
                r.read(r.to + done, done, std::min(piece, r.bytes - done));
        }
    }

  private:
    struct memory {
        std::unique_ptr<std::byte[]> bytes;
        std::size_t size = 0;
    };
    struct rest {
        std::function<void(std::byte*, std::size_t, std::size_t)> read;
        std::byte* to;
        std::size_t bytes;
    };

    std::byte* room(std::size_t index, std::size_t bytes) {
        if (index == memory_.size()) memory_.emplace_back();
        memory& m = memory_[index];
        if (m.size < bytes) m = {std::unique_ptr<std::byte[]>(new std::byte[bytes]), bytes};  // not cleared
        return m.bytes.get();
    }

    std::vector<memory> memory_;
    std::vector<rest> later_;
};

/// Lets the threads that compute go before this one, which writes to a disk: where all processors compute, it would otherwise
/// take its share of them.
inline void yield_to_steps() {
#if defined(__linux__)
    static_cast<void>(::setpriority(PRIO_PROCESS, 0, 15));  // there, of this thread alone
#endif
}

/// Announces a reader to each store once.
class latches {
  public:
    explicit latches(const std::vector<checkpoint_part>& parts) {
        for (const checkpoint_part& p : parts) {
            if (p.latch == nullptr || std::find(all_.begin(), all_.end(), p.latch) != all_.end()) continue;
            p.latch->begin();
            all_.push_back(p.latch);
        }
    }
    latches(const latches&) = delete;
    latches& operator=(const latches&) = delete;
    latches(latches&& other) noexcept : all_(std::exchange(other.all_, {})) {}
    ~latches() { release(); }
    void release() {
        for (read_latch* latch : all_) latch->end();
        all_.clear();
    }

  private:
    std::vector<read_latch*> all_;
};

}  // namespace detail

/// Saves checkpoints in a folder, one at a time, on a thread of its own. The parts must outlive the copy,
/// for which wait() and the destructor wait, too.
class checkpoint_saver {
  public:
    explicit checkpoint_saver(std::filesystem::path folder) : folder_(std::move(folder)) {}
    checkpoint_saver(const checkpoint_saver&) = delete;
    checkpoint_saver& operator=(const checkpoint_saver&) = delete;
    /// Waits until the last checkpoint is written; whether it was, failure() tells before.
    ~checkpoint_saver() { join(); }

    const std::filesystem::path& folder() const { return folder_; }

    /// Begins to save the parts (save_checkpoint in io/checkpoint.hpp has what they can be); waits for an earlier save
    /// first. Throws state_error within a window of micro-batches, std::bad_alloc, and what wait() would throw of an earlier
    /// save; a failure to write this one is told by failure(), and thrown by wait().
    template <class... Parts>
    void save(const checkpoint_options& o, Parts&... values) {
        wait();
        const std::vector<detail::checkpoint_part> parts = detail::parts_of(values...);
        is_written_ = false;
        auto contents = std::make_unique<std::vector<detail::part_contents>>(snapshot_.begin(parts));
        auto held = std::make_unique<detail::latches>(parts);
        writer_ = std::thread([this, o, contents = std::move(contents), held = std::move(held)] {
            snapshot_.finish();
            held->release();
            detail::yield_to_steps();
            try {
                detail::write_checkpoint(folder_, o, *contents);
            } catch (...) {
                failure_ = std::current_exception();
            }
            is_written_ = true;
        });
    }

    /// Whether a save is under way.
    bool is_saving() const { return writer_.joinable() && !is_written_; }
    /// Waits until the last checkpoint is written. Throws the io_error for which it could not be; once.
    void wait() {
        join();
        if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
    }
    /// If the last save has ended and failed, why; otherwise empty. Told once.
    std::string failure() {
        if (!writer_.joinable() || !is_written_) return {};
        try {
            wait();
        } catch (const std::exception& e) {
            return e.what();
        }
        return {};
    }

  private:
    void join() {
        if (writer_.joinable()) writer_.join();
    }

    std::filesystem::path folder_;
    detail::snapshot snapshot_;
    std::thread writer_;
    std::atomic<bool> is_written_{false};
    std::exception_ptr failure_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
