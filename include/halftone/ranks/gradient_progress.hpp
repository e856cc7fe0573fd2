// SPDX-License-Identifier: MIT
/// \file
/// Which gradients of an accumulator are complete, so that ranks exchange them while the rest of the backward pass goes on.
///
///     struct my_exchange : ht::detail::gradient_progress {
///         my_exchange(acc, ranks, micro_batches) : gradient_progress(acc.window(), ranks, micro_batches) { acc.listen(this); }
///         void complete(std::size_t gradient) override;       // within the last backward pass of a window: begin to send it
///         void finish() override;                             // take(): all gradients are complete; exchange the rest
///         void cancel() noexcept override;                    // discard(): nothing of this window is wanted
///     };
///
/// A gradient is complete when the operation has ended that claims it last. How often operations claim each gradient is
/// counted in the last backward pass of every window; in the next window's, a gradient is complete after as many. So
/// complete() is not called in the first window, nor for gradients that are claimed less often than before, which are
/// complete when the window ends. A claim after complete() throws state_error: what was sent lacked it.
///
/// Gradients are numbered: those of the first model's entries, in the order of its store, then the next model's. Frozen
/// parameters have numbers, too, but are never claimed.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <halftone/memory/gradient_listener.hpp>
#include <halftone/ranks/check_pass.hpp>
#include <halftone/scale/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class gradient_progress : public gradient_listener {
  public:
    /// `micro_batches`: backward passes in each window; 0: that is not known, and no gradient is complete before the
    /// window ends.
    gradient_progress(window& w, int ranks, int micro_batches)
        : window_(&w), ranks_(ranks), micro_batches_(micro_batches) {
        for (const window::part& p : w.parts) {
            first_.push_back(claims_.size());
            claims_.resize(claims_.size() + p.slabs.owner().entries().size(), 0);
        }
        first_.push_back(claims_.size());
        expected_.resize(claims_.size(), 0);
        is_complete_.resize(claims_.size(), false);
    }

    void begin_pass(int number, int ranks) final {
        check_pass({"accumulator", "ranks", ranks_, micro_batches_}, number, ranks);
        is_last_ = number == micro_batches_;
        std::fill(claims_.begin(), claims_.end(), 0);
        touched_.clear();
    }
    void claim(std::size_t part, std::size_t entry) final {
        const std::size_t gradient = first_[part] + entry;
        if (is_complete_[gradient]) {
            fail<state_error>("accumulator: the gradient of ", path(gradient), " has been sent to the other ranks, and ",
                              "this pass uses the parameter more than the ", expected_[gradient],
                              " times of the pass before; where that changes from step to step, let micro_batches be 0");
        }
        ++claims_[gradient];
        touched_.push_back(gradient);
    }
    void end_operation() final {
        if (!is_last_) return touched_.clear();
        for (const std::size_t gradient : touched_) {
            if (is_complete_[gradient] || claims_[gradient] != expected_[gradient]) continue;
            is_complete_[gradient] = true;
            complete(gradient);
        }
        order_.insert(order_.end(), touched_.begin(), touched_.end());
        touched_.clear();
    }
    void end_pass() final { end_operation(); }
    void end_window() final {
        is_last_ = false;
        finish();
        expected_ = claims_;
        std::fill(is_complete_.begin(), is_complete_.end(), false);
        order_.clear();
    }
    void discard() noexcept final {
        is_last_ = false;
        cancel();
        std::fill(is_complete_.begin(), is_complete_.end(), false);
        order_.clear();
    }

    /// The number of gradients, those of frozen parameters included.
    std::size_t gradients() const { return claims_.size(); }
    std::size_t part_of(std::size_t gradient) const {
        std::size_t part = 0;
        while (gradient >= first_[part + 1]) ++part;
        return part;
    }
    std::size_t number(std::size_t part, std::size_t entry) const { return first_[part] + entry; }
    gradient_slabs& slabs(std::size_t part) const { return window_->parts[part].slabs; }
    const store::entry& entry_of(std::size_t gradient) const {
        const std::size_t part = part_of(gradient);
        return slabs(part).owner().entries()[gradient - first_[part]];
    }
    const std::string& path(std::size_t gradient) const { return entry_of(gradient).path; }
    std::size_t parts() const { return window_->parts.size(); }

  protected:
    virtual void complete(std::size_t gradient) = 0;
    virtual void finish() = 0;
    virtual void cancel() noexcept = 0;
    /// Within finish(): the gradients that the window's last pass claimed, in the order of their last claims.
    std::vector<std::size_t> order() const {
        std::vector<std::size_t> last;
        std::vector<bool> seen(claims_.size(), false);
        for (std::size_t i = order_.size(); i-- > 0;) {
            if (!seen[order_[i]]) last.push_back(order_[i]);
            seen[order_[i]] = true;
        }
        std::reverse(last.begin(), last.end());
        return last;
    }

  private:
    window* window_;
    int ranks_, micro_batches_;
    bool is_last_ = false;
    std::vector<std::size_t> first_;            // by part: the number of its first gradient; and the number of all
    std::vector<int> claims_, expected_;        // by gradient: in this pass; in the last pass of the window before
    std::vector<bool> is_complete_;             // by gradient
    std::vector<std::size_t> touched_, order_;  // claims of the operation that runs; of all that have ended in the last pass
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
