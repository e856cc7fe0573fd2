// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/matmul/cpu/strategy/private_b.hpp>
#include <halftone/kernel/matmul/cpu/strategy/private_panels.hpp>
#include <halftone/kernel/matmul/cpu/strategy/shared_b.hpp>
#include <halftone/kernel/matmul/cpu/strategy/tiles.hpp>
#include <halftone/kernel/matmul/cpu/strategy/unpacked_b.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void run_strategy(const product_task& task) {
    switch (task.plan.strategy) {
        case product_strategy::narrow_b:
        case product_strategy::small_m:
            return unpacked_b_product(task).run();
        case product_strategy::a_stationary:
        case product_strategy::c_stationary:
            return private_panels_product(task).run();
        case product_strategy::private_b:
            return private_b_product(task).run();
        case product_strategy::shared_b:
            return shared_b_product(task).run();
        case product_strategy::tiles_a_stationary:
            return tiles_a_stationary_product(task).run();
        case product_strategy::tiles_shared_b:
            return tiles_shared_b_product(task).run();
    }
}

}  // namespace detail

namespace kernel {

HALFTONE_OUT_OF_LINE void matmul<cpu>::multiply(const detail::product_unit& unit, cpu& device, const detail::untyped_a& a,
                                  const detail::untyped_b& b, const detail::untyped_epilogue& epilogue) {
    if (a.rows == 0 || b.columns == 0) return;
    const auto run = [&](const written_squares* squares) {
        detail::run_strategy({.unit = unit,
                              .device = device,
                              .a = a,
                              .b = b,
                              .epilogue = epilogue,
                              .squares = squares,
                              .plan = detail::plan_product(detail::problem_of(unit, device, a, b))});
    };
    if (epilogue.squares == nullptr || epilogue.floats.data == nullptr) return run(nullptr);
    const written_squares squares(device, epilogue.floats.data, epilogue.floats.stride, {a.rows, b.columns},
                                  {unit.rows, unit.columns});
    run(&squares);
    device.run([&] { *epilogue.squares = squares.total(); });
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
