// SPDX-License-Identifier: MIT
/// \file
/// A data loader whose batches a GPU copies late: the bytes of a batch are not written again while the device may still
/// read them.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/data/data_loader.hpp>
#include <halftone/tensor/tensor.hpp>

#include "data/loader_stops.hpp"

namespace emulator_data_loader_tests {

namespace ht = halftone;

/// An emulated GPU that takes copies from pinned memory in their order, but not before somebody waits for an event behind
/// them, or chance has it so: what the host has written by then is what it copies.
class late_device : public ht::emulator::device {
    struct copies {
        std::recursive_mutex mutex;
        struct one {
            void* to;
            const void* from;
            std::size_t bytes;
        };
        std::deque<one> waiting;
        std::int64_t done = 0, issued = 0;
    };

  public:
    explicit late_device(std::uint64_t seed) : chance_(seed) {}
    ~late_device() { finish(copies_->issued); }

    class event {
      public:
        event(late_device* device, std::int64_t after) : device_(device), after_(after) {}
        void wait() const { device_->finish(after_); }

      private:
        late_device* device_;
        std::int64_t after_;
    };

    void copy(void* to, const void* from, std::size_t bytes) {
        const std::scoped_lock lock(copies_->mutex);
        copies_->waiting.push_back({to, from, bytes});
        ++copies_->issued;
        if (chance_.index(3) == 0) finish(copies_->issued - chance_.index(4));
    }
    event record() {
        const std::scoped_lock lock(copies_->mutex);
        return {this, copies_->issued};
    }
    /// The host reads the device's memory after all its work.
    std::vector<std::int64_t> read(const ht::const_view<std::int64_t, 1>& v) {
        finish(copies_->issued);
        std::vector<std::int64_t> values(static_cast<std::size_t>(v.size()));
        memory().read(values.data(), v.data(), values.size() * sizeof values[0]);
        return values;
    }
    /// Work of the stream that reads the device's memory now or later: it sees the copies before it.
    void finish(std::int64_t up_to) {
        const std::scoped_lock lock(copies_->mutex);
        while (copies_->done < up_to && !copies_->waiting.empty()) {
            const auto c = copies_->waiting.front();
            copies_->waiting.pop_front();
            const auto* from = static_cast<const std::byte*>(c.from);
            const bool is_live = memory().owns(from) || std::any_of(live_.begin(), live_.end(), [&](const auto& b) {
                                     return from >= b.first && from + c.bytes <= b.first + b.second;
                                 });
            is_always_live = is_always_live && is_live;
            // A GPU frees its own memory in the order of its work, the emulated one at once.
            if (is_live && memory().owns(c.to)) memory().copy(c.to, c.from, c.bytes);
            ++copies_->done;
        }
    }
    class pinned_bytes {
      public:
        pinned_bytes(late_device* device, std::size_t bytes) : device_(device), data_(new std::byte[bytes]) {
            const std::scoped_lock lock(device->copies_->mutex);
            device->live_.push_back({data_.get(), bytes});
        }
        pinned_bytes(pinned_bytes&&) = default;
        ~pinned_bytes() {
            if (data_ == nullptr) return;
            const std::scoped_lock lock(device_->copies_->mutex);
            std::erase_if(device_->live_, [&](const auto& b) { return b.first == data_.get(); });
        }
        void* data() const { return data_.get(); }

      private:
        late_device* device_;
        std::unique_ptr<std::byte[]> data_;
    };
    pinned_bytes pinned(std::size_t bytes) {
        ++blocks;
        return pinned_bytes(this, bytes);
    }
    bool is_always_live = true;  ///< no copy was of pinned memory that had been freed
    std::atomic<int> blocks{0};

  private:
    std::unique_ptr<copies> copies_ = std::make_unique<copies>();
    std::vector<std::pair<const std::byte*, std::size_t>> live_;
    struct dice {
        std::uint64_t state;
        explicit dice(std::uint64_t seed) : state(seed) {}
        int index(int n) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(n));
        }
    } chance_;
};

using ids = std::vector<std::int64_t>;

TEST_CASE("a device that copies late sees each batch as it was made") {
    static_assert(ht::capturing_device<late_device>);
    const data_test::numbers source{96};
    constexpr ht::extent steps = 32, rows = 6;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        for (const int workers : {0, 1, 3}) {
            late_device device{seed};
            const ht::tensor<std::int64_t, 2> seen{device.memory(), {steps, rows}};
            ht::data_loader plain{source, {.batch_size = rows, .seed = seed}, &data_test::collate};
            ht::data_loader loader{device, source, {.batch_size = rows, .num_workers = workers, .seed = seed},
                                   &data_test::collate};
            // The host launches all steps; each reads its batch when the device comes to it.
            ids want;
            for (ht::extent step = 0; step < steps; ++step) {
                const data_test::id_batch* batch = loader.next();
                if (batch == nullptr) batch = loader.next();
                REQUIRE(device.memory().owns(batch->values.data()));
                device.copy(seen.data() + step * rows, batch->values.data(), rows * sizeof(std::int64_t));
                const data_test::id_batch* same = plain.next();
                if (same == nullptr) same = plain.next();
                want.insert(want.end(), same->values.data(), same->values.data() + rows);
            }
            CHECK(device.read({seen.data(), {steps * rows}}) == want);
            CHECK(device.blocks <= 2 * workers + 1);  // pinned memory is reused
            CHECK(device.is_always_live);
        }
    }
}

TEST_CASE("a loader that ends before its copies have run waits for them") {
    const data_test::numbers source{96};
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        late_device device{seed};
        {
            ht::data_loader loader{device, source, {.batch_size = 6, .num_workers = static_cast<int>(seed % 3)},
                                   &data_test::collate};
            for (std::uint64_t step = 0; step < seed % 5; ++step) loader.next();
        }
        device.finish(1 << 20);
        CHECK(device.is_always_live);
    }
}

}  // namespace emulator_data_loader_tests
