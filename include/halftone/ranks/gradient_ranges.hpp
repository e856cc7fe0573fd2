// SPDX-License-Identifier: MIT
/// \file
/// A range of a gradient slab that is summed over ranks, whatever its types, in three parts between which other work goes
/// on.
///
///     detail::summed_range_of<cpu, float, bfloat16> range{device, comm, values, "gradients 0"};
///     range.begin(memory);   // sends the pieces, rounded to the wire type
///     range.gather();        // waits for them, adds them, and sends the sum of this rank's piece
///     range.finish();        // waits for the sums of all pieces: the values are those of all ranks now
///
/// Numeric contract: that of all_reduce (ranks/reduce.hpp).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include <halftone/ranks/reduce.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class summed_range {
  public:
    summed_range() = default;
    summed_range(const summed_range&) = delete;
    summed_range& operator=(const summed_range&) = delete;
    virtual ~summed_range() = default;

    /// The bytes of memory that begin() needs until finish() has returned.
    virtual std::size_t memory_bytes() const = 0;
    /// The bytes that this rank sends.
    virtual std::size_t sent_bytes() const = 0;
    virtual void begin(std::span<std::byte> memory) = 0;
    virtual void gather() = 0;
    virtual void finish() = 0;
    /// Waits for what has begun; the values are undefined then.
    virtual void drop() noexcept = 0;
};

template <class Device, class T, class Wire>
class summed_range_of final : public summed_range {
  public:
    /// `values`: in the device's memory.
    summed_range_of(Device& device, communicator& comm, const view<T, 1>& values, std::string what)
        : device_(&device), comm_(&comm), values_(values), what_(std::move(what)) {}

    std::size_t memory_bytes() const override { return reduction_bytes<Wire>(*comm_, values_.size()); }
    std::size_t sent_bytes() const override {
        const auto pieces = static_cast<std::size_t>(comm_->size() - 1);
        return 2 * pieces * static_cast<std::size_t>(piece_of(values_.size(), comm_->size())) * sizeof(Wire);
    }
    void begin(std::span<std::byte> memory) override {
        sum_.emplace(*device_, *comm_, what_.c_str(), values_.data(), values_.size(), memory);
    }
    void gather() override { sum_->gather(); }
    void finish() override {
        sum_->wait();
        sum_.reset();
    }
    void drop() noexcept override { sum_.reset(); }

  private:
    Device* device_;
    communicator* comm_;
    view<T, 1> values_;
    std::string what_;
    std::optional<pending_all_reduce<Wire, T, Device>> sum_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
