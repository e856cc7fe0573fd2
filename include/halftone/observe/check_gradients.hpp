// SPDX-License-Identifier: MIT
/// \file
/// Compares the gradient of a function with finite differences, in double: for authors of operations (the counterpart
/// of torch.autograd.gradcheck).
///
///     const auto report = ht::check_gradients(
///         device, [](auto& ctx, auto x, auto y) { return ht::apply<mine>(ctx, x, y); }, x, y);
///     if (!report.agrees()) std::cout << report.text();
///     // check_gradients: input 1, element 3: backward gives 2.5, differences 5; 1 of 12 elements disagree
///
/// Inputs are views of doubles in host memory; the function is called with a tape and a variable for each input, and
/// returns a variable of doubles of any shape. The sum s of its elements, weighted by fixed random numbers, is
/// differentiated by backward, and by differences (s(x + h) - s(x - h)) / 2h with h = eps max(1, |x|). Each element of
/// the inputs takes two calls of the function, so use small inputs.
///
/// The same for the parameters of a model, whose policy must be ht::full_fp64: the function then takes a tape only.
///
///     ht::nn::gpt<ht::full_fp64> model{device, config};
///     const auto report = ht::check_gradients(
///         device, {.every = 10}, model, [&](auto& ctx) { return model.loss(ctx, batch); });
///
/// Both derivatives are fp64 if all operations of the function are: a function that rounds to float inside has
/// differences that are off by 1e-7 / eps, and fails. Random numbers (ht::dropout) are the same in all calls. Functions
/// that are not differentiable at a point disagree within h of it.
#pragma once

#include <cmath>
#include <concepts>
#include <string>
#include <tuple>
#include <vector>

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/memory/gradient_slabs.hpp>
#include <halftone/number/normal.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/policy/model.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// An element disagrees if |backward's - differences'| > atol + rtol |differences'|, or if either is NaN.
struct gradient_check_options {
    double eps = 1e-5;
    double atol = 1e-7;
    double rtol = 1e-5;
    extent every = 1;  ///< checks one of this number of elements
};

/// The result of check_gradients: the number of elements checked, and the element with the largest excess: its index
/// and its two derivatives.
struct gradient_report {
    extent checked = 0;   ///< number of elements checked, of all inputs
    extent disagree = 0;  ///< how many of these disagree
    // The element that exceeds its tolerance most, or comes closest to it.
    std::string input;   ///< "input 0", or the parameter's path
    extent element = 0;  ///< its index in that input, in memory order
    double backward = 0, differences = 0;

    bool agrees() const { return disagree == 0; }
    /// A sentence without a line end.
    std::string text() const {
        return detail::sentence("check_gradients: ", input, ", element ", element, ": backward gives ", backward,
                                ", differences ", differences, "; ", disagree, " of ", checked,
                                checked == 1 ? " element disagrees" : " elements disagree");
    }
};

namespace detail {

/// What both kinds of checks share: the function's value as a scalar, the comparison of one element.
template <class Device>
class gradient_comparison {
  public:
    gradient_comparison(Device& device, const gradient_check_options& options) : device_(device), options_(options) {
        if (!(options.eps > 0 && options.atol >= 0 && options.rtol >= 0 && options.every >= 1))
            fail<argument_error>("check_gradients: eps is ", options.eps, ", atol ", options.atol, ", rtol ",
                                 options.rtol, ", every ", options.every,
                                 "; expected eps > 0, tolerances of 0 or more, every 1 or more");
    }
    const gradient_report& report() const { return report_; }

  protected:
    Device& device() const { return device_; }

    /// The weighted sum of the elements of f's result.
    template <class Tape, class F>
    auto weighted_sum(Tape& tape, const F& f) {
        tape.seed(0);
        const auto y = f(tape);
        using Y = std::remove_cvref_t<decltype(y)>;
        static_assert(std::is_same_v<typename Y::value_type, double>,
                      "halftone: check_gradients: the function's result is not a variable of doubles: some operation on "
                      "the way rounds (an explicit type, ht::cast<float>, an operation of your own that makes floats), "
                      "and differences of what is rounded are no gradient");
        host_tensor<double, Y::rank> weights(y.shape());
        for (extent i = 0; i < weights.size(); ++i) {
            const auto n = static_cast<std::uint64_t>(2 * i);
            weights.data()[i] =
                0.5 + static_cast<double>(normal(random_bits(1, 0, 0, n), random_bits(1, 0, 0, n + 1)).first);
        }
        weights_ = to_device(device_, flatten(weights.view()));
        return reduce<op::sum, double>(tape, 1.0, multiply_function{}, y,
                                       tape.constant(const_view<double, Y::rank>(as_view(weights_).data(), y.shape())));
    }
    template <class F>
    double evaluate(const F& f) {
        tape<Device> tape{device_};
        return weighted_sum(tape, f).item();
    }
    template <class F>
    void expect_again(double value, const F& f) {
        if (const double again = evaluate(f); !(again == value) && !(again != again && value != value)) {
            fail<state_error>("check_gradients: the function gives another value (", again, ", before ", value,
                              ") for the same inputs");
        }
    }

    /// Checks the element at address `place` in the device's memory.
    template <class F>
    void compare(const std::string& input, extent element, double* place, double slope, const F& f) {
        if (seen_++ % options_.every != 0) return;
        double x = 0;
        device_.memory().read(&x, place, sizeof x);
        const double step = options_.eps * std::fmax(1.0, std::fabs(x)), above = x + step, below = x - step;
        const auto at = [&](double value) {
            device_.memory().write(place, &value, sizeof value);
            return evaluate(f);
        };
        const double high = at(above), low = at(below), difference = (high - low) / (above - below);
        device_.memory().write(place, &x, sizeof x);

        const double distance = std::fabs(slope - difference);
        const double tolerance = options_.atol + options_.rtol * std::fabs(difference);
        const double excess = distance == 0 ? 0 : distance / tolerance;
        if (report_.checked == 0 || !(excess <= worst_)) {  // also true for NaN
            worst_ = excess == excess ? excess : HUGE_VAL;
            report_.input = input, report_.element = element;
            report_.backward = slope, report_.differences = difference;
        }
        ++report_.checked;
        report_.disagree += distance <= tolerance ? 0 : 1;
    }

  private:
    Device& device_;
    gradient_check_options options_;
    gradient_report report_;
    extent seen_ = 0;
    double worst_ = 0;
    tensor<double, 1> weights_;  // kept while a tape reads them
};

template <class Device, class Indices>
class input_checker;

/// The inputs as tensors in the device's memory, of which one element at a time is changed.
template <class Device, std::size_t... I>
class input_checker<Device, std::index_sequence<I...>> : public gradient_comparison<Device> {
  public:
    using gradient_comparison<Device>::gradient_comparison;

    template <class F, class... Views>
    void run(const F& f, const Views&... views) {
        const std::tuple inputs{to_device(this->device(), views)...};
        std::tuple slopes{host_tensor<double, Views::rank>(views.shape())...};
        const auto of_inputs = [&](auto& tape) {
            return f(tape, tape.leaf(as_const(as_view(std::get<I>(inputs))))...);
        };
        {
            tape<Device> tape{this->device()};
            const std::tuple leaves{tape.leaf(as_const(as_view(std::get<I>(inputs))))...};
            const auto sum = this->weighted_sum(tape, [&](auto& t) { return f(t, std::get<I>(leaves)...); });
            const double value = sum.item();
            if (sum.wants_gradient()) tape.backward(sum);
            (take(tape, std::get<I>(leaves), std::get<I>(slopes)), ...);
            this->expect_again(value, of_inputs);
        }
        (compare_all(static_cast<int>(I), as_view(std::get<I>(inputs)), std::get<I>(slopes), of_inputs), ...);
    }

  private:
    /// The gradients, zeros where none arrived.
    template <class Tape, int Rank>
    void take(Tape& tape, const variable<double, Rank>& leaf, host_tensor<double, Rank>& slopes) {
        if (tape.graph().has_gradient(leaf.slot())) slopes = to_host(this->device(), tape.gradient(leaf));
    }
    template <int Rank, class F>
    void compare_all(int index, const view<double, Rank>& there, const host_tensor<double, Rank>& slopes, const F& f) {
        for (extent i = 0; i < slopes.size(); ++i)
            this->compare(sentence("input ", index), i, there.data() + i, slopes.data()[i], f);
    }
};

/// The parameters, in the store.
template <class Device>
class parameter_checker : public gradient_comparison<Device> {
  public:
    using gradient_comparison<Device>::gradient_comparison;

    template <class F>
    void run(store& parameters, const F& f) {
        sink slopes{gradient_slabs(parameters)};
        {
            tape<Device> tape{this->device()};
            const auto sum = this->weighted_sum(tape, f);
            const double value = sum.item();
            tape.backward(sum, slopes);
            slopes.slabs.close();
            this->expect_again(value, f);
        }
        for (std::size_t k = 0; k < parameters.entries().size(); ++k) {
            const store::entry& e = parameters.entries()[k];
            if (e.frozen) continue;
            std::vector<double> gradient(e.count);
            parameters.memory().read(gradient.data(), slopes.slabs.template group<doubles>(e.group).data() + e.gradient,
                                     e.count * sizeof(double));
            auto* const values = reinterpret_cast<double*>(parameters.groups()[e.group].master.data()) + e.master;
            for (std::size_t i = 0; i < e.count; ++i)
                this->compare(e.path, static_cast<extent>(i), values + i, gradient[i], f);
        }
    }

  private:
    struct doubles {
        using accumulate = double;
    };
    /// Receives gradients as an accumulator does.
    struct sink {
        gradient_slabs slabs;

        template <class Loss>
        void receive(const Loss&) {}
        gradient_slabs* find(const store& owner) { return &owner == &slabs.owner() ? &slabs : nullptr; }
    };
};

template <class... Storage>
consteval bool are_doubles(types<Storage...>) {
    return ((std::is_same_v<typename Storage::param, double> && !has_sparse_gradient<Storage>)&&...);
}

template <class Model>
concept model_with_parameters = requires(Model& m) {
    { m.parameters() } -> std::same_as<store&>;
};

}  // namespace detail

/// Compares the gradients of f's backward pass with differences: the file's head has the rules. Throws what f throws,
/// argument_error for invalid options, and state_error if f gives two different values for the same inputs.
template <class Device, class F, class... T, int... Rank>
[[nodiscard]] gradient_report check_gradients(Device& device, const gradient_check_options& options, const F& f,
                                              const view<T, Rank>&... inputs) {
    static_assert(
        sizeof...(T) > 0 && (std::is_same_v<std::remove_const_t<T>, double> && ...),
        "halftone: check_gradients: inputs are views of doubles, one or more: differences of floats have three "
        "digits at best; run the operation in fp64 here, and in its own type where it is used");
    detail::input_checker<Device, std::index_sequence_for<T...>> checker(device, options);
    checker.run(f, const_view<double, Rank>(inputs)...);
    return checker.report();
}
template <class Device, class F, class... T, int... Rank>
[[nodiscard]] gradient_report check_gradients(Device& device, const F& f, const view<T, Rank>&... inputs) {
    return check_gradients(device, gradient_check_options{}, f, inputs...);
}

/// Compares the gradients of the parameters of a model that are not frozen with differences; f is called with a tape.
template <class Device, detail::model_with_parameters Model, class F>
[[nodiscard]] gradient_report check_gradients(Device& device, const gradient_check_options& options, Model& model,
                                              const F& f) {
    static_assert(detail::are_doubles(signatures_of<Model>{}),
                  "halftone: check_gradients: this model has parameters that are not doubles, or a table whose gradient "
                  "is sparse; check it under ht::full_fp64, as in ht::nn::gpt<ht::full_fp64>");
    detail::parameter_checker<Device> checker(device, options);
    checker.run(model.parameters(), f);
    return checker.report();
}
template <class Device, detail::model_with_parameters Model, class F>
[[nodiscard]] gradient_report check_gradients(Device& device, Model& model, const F& f) {
    return check_gradients(device, gradient_check_options{}, model, f);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
