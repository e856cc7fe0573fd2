// SPDX-License-Identifier: MIT
/// \file
/// The exceptions that halftone throws, and the one function that composes their messages.
///
/// Every message names the operation, what it was given and what it expects:
///
///     matmul: the inner extents differ: a is (128, 64), b is (32, 256); b needs 64 rows
#pragma once

#include <initializer_list>
#include <sstream>
#include <stdexcept>
#include <string>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The base of all of halftone's exceptions.
struct error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Shapes that do not fit together, or an extent that is out of range.
struct shape_error : error {
    using error::error;
};

/// An argument outside its range, or an option that contradicts another.
struct argument_error : error {
    using error::error;
};

/// A call that the object's state does not allow yet or no longer allows, such as a step before its unscale.
struct state_error : error {
    using error::error;
};

/// Memory that could not be allocated; the message says how much was requested and how much is allocated already.
struct out_of_memory : error {
    using error::error;
};

namespace detail {

/// One part of a message: a pointer to a value, which must outlive this object, and the function that prints it.
struct sentence_part {
    const void* value;
    void (*print)(std::ostream& out, const void* value);
};

template <class T>
sentence_part part_of(const T& value) {
    return {&value, [](std::ostream& out, const void* v) { out << *static_cast<const T*>(v); }};
}
/// For string literals: one overload for all lengths, not one instantiation a length.
inline sentence_part part_of(const char* text) {
    return {text, [](std::ostream& out, const void* v) { out << static_cast<const char*>(v); }};
}

// Not a template: messages are composed at hundreds of call sites and rarely printed, so the code that composes one
// exists once.
std::string sentence_of(std::initializer_list<sentence_part> parts);

/// One message, composed of its parts, each printed with `operator<<`.
template <class... Parts>
std::string sentence(const Parts&... parts) {
    return sentence_of({part_of(parts)...});
}

template <class Error>
[[noreturn]] void fail_with(std::initializer_list<sentence_part> parts) {
    throw Error(sentence_of(parts));
}

}  // namespace detail

/// Throws `Error` with the given parts as its message. Never inlined, so that its callers stay small enough to be
/// inlined.
template <class Error, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
    detail::fail_with<Error>({detail::part_of(parts)...});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/error.body.hpp>
#endif
