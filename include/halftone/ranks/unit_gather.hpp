// SPDX-License-Identifier: MIT
/// \file
/// Gathers the parameters of a unit before they are read (ZeRO 3). There is memory for two units: the one that is open,
/// and the one before or after it, whose parameters are on their way meanwhile.
///
///     detail::unit_gather gather{parameters, comm, names};
///     gather.open(2, detail::unit_pass::forward);       // waits for unit 2, and begins unit 3
///     gather.values(entry)                              // until
///     gather.close();
///
/// A unit has the same addresses whenever it is open, so that what a forward pass kept of them, the backward pass can
/// read. Units with odd numbers share one half of the memory, those with even numbers the other.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/store.hpp>
#include <halftone/ranks/communicator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// How units were gathered.
struct gather_counts {
    std::int64_t gathers = 0;   ///< units whose parameters were gathered
    std::int64_t ahead = 0;     ///< of these: begun before the unit was opened
    std::size_t bytes = 0;      ///< what this rank sent to each of the others
};

namespace detail {

class unit_gather {
  public:
    /// `names` of units; the first is the rest.
    unit_gather(const store& parameters, communicator& comm, std::vector<std::string> names)
        : parameters_(&parameters), comm_(&comm), names_(std::move(names)), place_(parameters.runs().size()) {
        std::vector<std::size_t> bytes(names_.size());
        for (std::size_t i = 0; i < place_.size(); ++i) {
            const store_run& r = parameters.runs()[i];
            if (!is_gathered(r)) continue;
            place_[i] = bytes[r.unit];
            bytes[r.unit] += round_up(r.count * each_of(r), block_alignment);
        }
        std::size_t most[2] = {};
        for (std::size_t u = 1; u < bytes.size(); ++u) most[u % 2] = std::max(most[u % 2], bytes[u]);
        for (int half = 0; half < 2; ++half)
            halves_[half].memory = buffer(parameters.memory(), most[half], memory_kind::copy);
    }
    unit_gather(const unit_gather&) = delete;
    unit_gather& operator=(const unit_gather&) = delete;

    void open(std::size_t unit, unit_pass pass) {
        if (begin(unit)) {
            ++counts_.gathers;
        }
        settle(halves_[unit % 2]);
        current_ = unit;
        const std::size_t next = pass == unit_pass::forward ? unit + 1 : unit - 1;
        if (next != 0 && next < names_.size() && begin(next)) ++counts_.gathers, ++counts_.ahead;
    }
    void close() { current_ = 0; }
    std::size_t current() const { return current_; }
    const std::string& name(std::size_t unit) const { return names_[unit]; }
    const gather_counts& counts() const { return counts_; }
    /// Bytes of the memory for two units.
    std::size_t bytes() const {
        return round_up(halves_[0].memory.bytes(), block_alignment) + round_up(halves_[1].memory.bytes(), block_alignment);
    }

    /// The first element of an entry's gathered parameters. Throws state_error if its unit is not open.
    const std::byte* values(std::size_t entry) const {
        const store::entry& e = parameters_->entries()[entry];
        const store_run& r = parameters_->runs()[e.run];
        if (r.unit != current_) {
            fail<state_error>("shard: ", e.path, " is read outside of its unit ", names_[r.unit], ", and is gathered only while "
                              "that is called", current_ == 0 ? "" : "; open is ", current_ == 0 ? "" : names_[current_],
                              "; leave it to the rest, or read it with read()");
        }
        return halves_[r.unit % 2].memory.data() + place_[e.run] + e.in_run * each_of(r);
    }
    /// Parameters have changed: all units have to be gathered anew.
    void forget() {
        for (half& h : halves_) {
            settle(h);
            h.unit = 0;
        }
    }

  private:
    struct half {
        buffer memory;
        std::size_t unit = 0;  // whose parameters are in it, or on their way; 0: none
        std::vector<pending> under_way;
    };

    /// Whether kernels read a run of which this rank has a piece.
    bool is_gathered(const store_run& r) const {
        return r.unit != 0 && r.kind != store_run::content::state && !read_by_kernels(r).is_whole;
    }
    const run_place& read_by_kernels(const store_run& r) const {
        return parameters_->groups()[r.group].copy_bytes != 0 ? r.copy : r.master;
    }
    std::size_t each_of(const store_run& r) const {
        const store::group& g = parameters_->groups()[r.group];
        return g.copy_bytes != 0 ? g.copy_bytes : g.param_bytes;
    }
    /// False if it has begun already.
    bool begin(std::size_t unit) {
        half& h = halves_[unit % 2];
        if (h.unit == unit) return false;
        settle(h);
        h.unit = unit;
        for (std::size_t i = 0; i < place_.size(); ++i) {
            const store_run& r = parameters_->runs()[i];
            if (r.unit != unit || !is_gathered(r)) continue;
            const store::group& g = parameters_->groups()[r.group];
            const std::size_t each = each_of(r), bytes = r.piece * each;
            const std::byte* const mine = (g.copy_bytes != 0 ? g.copy : g.master).data() + read_by_kernels(r).first * each;
            h.under_way.push_back(comm_->begin_all_gather(names_[unit].c_str(), mine, h.memory.data() + place_[i], bytes));
            counts_.bytes += bytes;
        }
        return true;
    }
    static void settle(half& h) {
        std::vector<pending> under_way = std::exchange(h.under_way, {});
        for (pending& p : under_way) p.wait();
    }

    const store* parameters_;
    communicator* comm_;
    std::vector<std::string> names_;
    std::vector<std::size_t> place_;  // by run: bytes before it in its half
    half halves_[2];
    std::size_t current_ = 0;
    gather_counts counts_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
