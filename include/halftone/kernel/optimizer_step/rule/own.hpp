// SPDX-License-Identifier: MIT
/// \file
/// The update of a parameter by a rule of a program's own (optimizer_step.hpp has what a rule is), compiled for the vectors
/// of each instruction set and for the threads of a GPU. It stands in the namespace of the rule, outside of functions:
///
///     HALFTONE_UPDATE(sign_rule,                                            // s, w, g, moments, keeps; the type is V
///         V& m = moments[0];
///         m = fma(g - m, splat(s.weight), m);
///         return fma(select(less(splat(0.0f), m), splat(-s.lr), splat(s.lr)), splat(1.0f), w * s.decay);)
///
/// V is a float, or a vector of floats, with + - * / and unary minus, also with a float at the right; it has these functions:
/// splat(x) of a float, fma(a, b, c), sqrt(a), less(a, b), select(condition, yes, no). `s` are the rule's scalars, `w` and `g`
/// the parameter and its gradient, `moments` an array of Rule::moments, to be updated in place; the new parameter is returned.
/// For parameters of a type that float does not hold V is a double; the scalars are floats there, too, unless the rule has
/// scalars_in<Real> and scalars_of<Real>, as rule/adamw.hpp.
#pragma once

#include <concepts>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/device/floats.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/in_double.hpp>

/// One function for each type V; attributes select the instructions, as exec/cpu/set/ does for the library's bodies. Where one set is
/// compiled, `portable` is a name of it, and the compiler's flags select them.
#if HALFTONE_PORTABLE && HALFTONE_AVX512
#define HALFTONE_UPDATE(RULE, ...)                                                                                    \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::portable, ::halftone::portable::f32, HALFTONE_INLINE, __VA_ARGS__)          \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::avx2, ::halftone::avx2::f32,                                                \
                        __attribute__((target("avx2,fma,f16c"))) HALFTONE_INLINE, __VA_ARGS__)                        \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::avx512, ::halftone::avx512::f32,                                            \
                        __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))) HALFTONE_INLINE,  \
                        __VA_ARGS__)                                                                                  \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::kernel::on_device::floats, float, HALFTONE_HD HALFTONE_INLINE, __VA_ARGS__) \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::kernel::on_device::doubles, V64, template <std::same_as<double> V64> HALFTONE_HD HALFTONE_INLINE, \
                        __VA_ARGS__)
#else
#define HALFTONE_UPDATE(RULE, ...)                                                                                    \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::portable, ::halftone::portable::f32, HALFTONE_INLINE, __VA_ARGS__)          \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::kernel::on_device::floats, float, HALFTONE_HD HALFTONE_INLINE, __VA_ARGS__) \
    HALFTONE_UPDATE_FOR(RULE, ::halftone::kernel::on_device::doubles, V64, template <std::same_as<double> V64> HALFTONE_HD HALFTONE_INLINE, \
                        __VA_ARGS__)
#endif
/// A part of HALFTONE_UPDATE.
#define HALFTONE_UPDATE_FOR(RULE, SET, TYPE, ATTRIBUTES, ...)                                                               \
    ATTRIBUTES TYPE updated(const ::halftone::kernel::step_scalars_for<RULE, TYPE>& s, TYPE w, TYPE g,                       \
                            TYPE(&moments)[RULE::moments], bool keeps) {                                                    \
        using V = TYPE;                                                                                                     \
        using SET::fma, SET::less, SET::select, SET::splat, SET::sqrt;                                                      \
        static_cast<void>(s), static_cast<void>(keeps);                                                                     \
        __VA_ARGS__                                                                                                         \
    }
