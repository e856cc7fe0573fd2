// SPDX-License-Identifier: MIT
#include <cstdio>
#include <iostream>

#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/metrics/terminal.hpp>
#include <halftone/observe/report/table.hpp>

#include "progress.hpp"

namespace ht = halftone;

namespace {

class observer final : public ht::trainer_callback {
  public:
    observer(const std::string& name, std::int64_t steps, ht::run_report* page)
        : page_(page), bar_(std::cerr, name, steps, {.columns = ht::terminal_columns(stderr), .lines = 4}) {}
    void on_step(const ht::trainer_state& s) override {
        bar_.update({.step = s.step,
                     .loss = s.loss,
                     .learning_rate = s.learning_rate,
                     .tokens_per_second = s.tokens_per_second,
                     .bytes = static_cast<double>(s.peak_bytes)},
                    s.seconds);
        if (page_ != nullptr) page_->add(s);
    }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override {
        if (page_ != nullptr) page_->add_validation(s.step, r.loss);
        bar_.note(ht::detail::formatted("step %lld: held-out loss %.4f", static_cast<long long>(s.step), r.loss));
    }
    void on_save_failed(const ht::trainer_state&, const std::string& why) override {
        bar_.note("no checkpoint could be saved: " + why);
    }
    void on_train_end(const ht::trainer_state&) override { bar_.finish(); }

  private:
    ht::run_report* page_;
    ht::progress bar_;
};

}  // namespace

std::unique_ptr<ht::trainer_callback> make_progress(const std::string& name, std::int64_t steps, ht::run_report* page) {
    return std::make_unique<observer>(name, steps, page);
}
