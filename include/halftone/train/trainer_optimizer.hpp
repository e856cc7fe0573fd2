// SPDX-License-Identifier: MIT
/// \file
/// The optimizer of a trainer: the one that it was asked for, or the form of that with moments in 8 bits. Included by
/// trainer.hpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <halftone/exec/ranges.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/optim/lion.hpp>
#include <halftone/optim/lion_8bit.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/optim/sgd_8bit.hpp>
#include <halftone/train/training_arguments.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What a trainer was asked for: an optimizer's options, and the name that `optim` gives.
template <optimizer_options Options>
struct asked_optimizer {
    static constexpr bool has_eight_bit_form = detail::has_eight_bit_form<Options>;

    Options options;
    std::string name = Options::name;

    /// Whether the optimizer has another form, with moments in 8 bits.
    bool has_eight_bits() const {
        if constexpr (has_eight_bit_form) return Options::eight_bit::of(options).has_value();
        return false;
    }
    /// The name of the optimizer's form with moments in 8 bits; empty if there is none.
    static const char* eight_bit_name() {
        if constexpr (has_eight_bit_form) return Options::eight_bit::name;
        return "";
    }
    /// Whether its moments could be in 8 bits, and are not.
    bool has_wide_moments() const { return has_eight_bits() && name == Options::name; }
};

/// What the trainer is asked for by options and by arguments. Throws argument_error for an `optim` that is neither.
template <optimizer_options Options>
asked_optimizer<Options> asked_by(const Options& options, const training_arguments& a) {
    asked_optimizer<Options> asked{options};
    if (a.optim.empty() || a.optim == Options::name) return asked;
    if (!asked.has_eight_bits())
        fail<argument_error>("training_arguments: optim is ", a.optim, "; this trainer's optimizer is ", Options::name);
    if (a.optim != asked.eight_bit_name()) {
        fail<argument_error>("training_arguments: optim is ", a.optim, "; this trainer's optimizer is ", Options::name, " or ",
                             asked.eight_bit_name());
    }
    asked.name = a.optim;
    return asked;
}

/// AdamW as the arguments describe it: a trainer's optimizer if it is given none.
inline asked_optimizer<adamw_options> asked_by(const training_arguments& a) {
    return asked_by(adamw_options{.lr = a.learning_rate, .beta1 = a.adam_beta1, .beta2 = a.adam_beta2,
                                  .epsilon = a.adam_epsilon, .weight_decay = a.weight_decay, .seed = a.seed},
                    a);
}
/// Another one, given with its options. Throws argument_error for arguments that describe an AdamW, too, which would not be
/// read.
template <optimizer_options Options>
asked_optimizer<Options> asked_beside(const Options& options, const training_arguments& a) {
    const training_arguments unset{};
    const auto expect_unset = [&](const char* field, double value, double its_default) {
        if (value == its_default) return;
        fail<argument_error>("training_arguments: ", field, " is ", value, " beside ", Options::name,
                             "_options, which the trainer was given; expected it there");
    };
    expect_unset("learning_rate", a.learning_rate, unset.learning_rate);
    expect_unset("weight_decay", a.weight_decay, unset.weight_decay);
    expect_unset("adam_beta1", a.adam_beta1, unset.adam_beta1);
    expect_unset("adam_beta2", a.adam_beta2, unset.adam_beta2);
    expect_unset("adam_epsilon", a.adam_epsilon, unset.adam_epsilon);
    return asked_by(options, a);
}

/// The optimizer that a trainer has, of one of the two forms.
template <class Device, class Model, optimizer_options Options>
class chosen_optimizer {
    template <class O>
    using made_of = typename O::template optimizer<Device, Model>;
    template <class O>
    struct forms {
        using type = std::variant<made_of<O>>;
    };
    template <has_eight_bit_form O>
    struct forms<O> {
        using type = std::variant<made_of<O>, made_of<typename O::eight_bit>>;
        using eight_bit = made_of<typename O::eight_bit>;
    };
    using all = typename forms<Options>::type;

  public:
    chosen_optimizer(Device& device, Model& model, const asked_optimizer<Options>& asked, const std::string& name,
                     std::vector<parameter_group> groups)
        : now_(made(device, model, asked, name, std::move(groups))) {
        note();
    }

    /// Makes the form of this name in place of what is there, whose moments are freed first.
    void remake(Device& device, Model& model, const asked_optimizer<Options>& asked, const std::string& name,
                std::vector<parameter_group> groups) {
        if constexpr (asked_optimizer<Options>::has_eight_bit_form) {
            if (name != Options::name) {
                now_.template emplace<1>(device, model, *Options::eight_bit::of(asked.options), std::move(groups));
                return note();
            }
        }
        now_.template emplace<0>(device, model, asked.options, std::move(groups));
        note();
    }

    /// Calls f with the optimizer as what it is.
    template <class F>
    decltype(auto) visit(const F& f) {
        return std::visit(f, now_);
    }
    /// What all optimizers have.
    optimizer<Device, Model>& base() {
        return visit([](auto& o) -> optimizer<Device, Model>& { return o; });
    }
    /// The optimizer if it has moments in 8 bits, and the other form has not; else nullptr.
    auto* eight_bit()
        requires has_eight_bit_form<Options>
    {
        return std::get_if<1>(&now_);
    }
    /// "lion (update)".
    const char* part() const { return part_.c_str(); }

    /// What a step has to do: it reads gradients, reads and writes masters and moments, writes copies. Without flops if
    /// these are not known.
    operation_work work(const memory_usage& usage, const store& parameters) const {
        double flops = 0;
        if constexpr (requires { Options::flops_per_element; }) flops = Options::flops_per_element;
        const auto bytes = [&](memory_kind kind) { return static_cast<double>(usage.live(kind)); };
        return {flops * static_cast<double>(parameters.size()),
                bytes(memory_kind::gradient) + 2 * bytes(memory_kind::master) + 2 * bytes(memory_kind::moment) +
                    bytes(memory_kind::copy),
                0, arithmetic::fp32, false};
    }

  private:
    static all made(Device& device, Model& model, const asked_optimizer<Options>& asked, const std::string& name,
                    std::vector<parameter_group> groups) {
        if constexpr (asked_optimizer<Options>::has_eight_bit_form) {
            if (name != Options::name)
                return all(std::in_place_index<1>, device, model, *Options::eight_bit::of(asked.options), std::move(groups));
        }
        return all(std::in_place_index<0>, device, model, asked.options, std::move(groups));
    }
    void note() { part_ = std::string(base().name()) + " (update)"; }

    all now_;
    std::string part_;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
