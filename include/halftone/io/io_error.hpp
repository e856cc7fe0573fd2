// SPDX-License-Identifier: MIT
/// \file
/// The exceptions for files: what cannot be read or written, and contents that are not what they should be.
///
///     try { ht::load_weights(model, "model.safetensors"); } catch (const ht::io_error& e) { std::cerr << e.what() << '\n'; }
#pragma once

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A file that cannot be opened, read, written or renamed; the base of the exceptions for wrong contents.
struct io_error : error {
    using error::error;
};

/// A .safetensors file, or an index of several, whose contents violate the format.
struct safetensors_error : io_error {
    using io_error::io_error;
};

/// A GGUF file whose contents violate the format, or that holds what halftone does not read or compute.
struct gguf_error : io_error {
    using io_error::io_error;
};

/// A .npy file whose contents violate the format, or that holds what halftone does not read.
struct npy_error : io_error {
    using io_error::io_error;
};

/// A checkpoint that is damaged or incomplete, or of another model, optimizer or policy.
struct checkpoint_error : io_error {
    using io_error::io_error;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
