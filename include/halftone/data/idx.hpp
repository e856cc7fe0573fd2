// SPDX-License-Identifier: MIT
/// \file
/// IDX files, the format of MNIST and Fashion-MNIST: images and their labels as bytes.
///
///     const ht::labelled_images train{ht::read_idx("train-images-idx3-ubyte"), ht::read_idx("train-labels-idx1-ubyte"), 10};
///     train[0].pixels, train[0].label                                     // height x width bytes, 0 to 9
///     ht::parse_idx(ht::read_gzip(file), file)                            // a compressed file: data/gzip.hpp
///
/// An IDX file is two zero bytes, a byte for the type of its elements (8: unsigned bytes, the only one read here), one for
/// the number of axes, their extents as 32-bit numbers with the highest byte first, and the elements
/// (yann.lecun.com/exdb/mnist). Every file is read and checked whole when it is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <halftone/data/data_error.hpp>
#include <halftone/data/text.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The contents of an IDX file.
struct idx_array {
    std::vector<extent> extents{};  ///< of 1 to 4 axes
    std::string bytes{};            ///< the elements, row-major
    std::string name{};             ///< of the file, for messages

    /// The elements as numbers.
    std::span<const std::uint8_t> elements() const {
        return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
    }
};

/// The array of a file's bytes; `name` is the file's, for messages. Throws data_error if they are not exactly an IDX file
/// of unsigned bytes with 1 to 4 axes.
inline idx_array parse_idx(std::string file, const std::filesystem::path& name) {
    const auto byte = [&file](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(file[i])); };
    const std::string where = name.string();
    if (file.empty()) fail<data_error>("idx: ", where, " is empty");
    if (file.size() >= 2 && byte(0) == 0x1f && byte(1) == 0x8b) {
        fail<data_error>("idx: ", where, " is compressed; expected an IDX file (decompress it with gunzip, or read it "
                         "with ht::read_gzip)");
    }
    if (file.size() < 4) fail<data_error>("idx: ", where, " has ", file.size(), " bytes; expected a header of 8 or more");
    if (byte(0) != 0 || byte(1) != 0 || byte(2) != 8 || byte(3) < 1 || byte(3) > 4) {
        fail<data_error>("idx: ", where, " begins with the bytes ", byte(0), " ", byte(1), " ", byte(2), " ", byte(3),
                         "; expected 0 0 8 and 1 to 4, the beginning of an IDX file of unsigned bytes");
    }
    const std::size_t axes = byte(3), header = 4 + 4 * axes;
    if (file.size() < header)
        fail<data_error>("idx: ", where, " has ", file.size(), " bytes; expected a header of ", header);
    idx_array result{{}, {}, where};
    std::uint64_t elements = 1;
    std::string text;
    for (std::size_t axis = 0; axis < axes; ++axis) {
        const std::size_t at = 4 + 4 * axis;
        const std::uint64_t n =
            std::uint64_t{byte(at)} << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
        result.extents.push_back(static_cast<extent>(n));
        text += (axis == 0 ? "" : " x ") + std::to_string(n);
        // At most 2^32 each: the product of what came before is kept below 2^62, so that nothing wraps.
        if (elements != 0 && n > (std::uint64_t{1} << 62) / elements)
            fail<data_error>("idx: ", where, " says ", text, " elements and more; it has ", file.size(), " bytes");
        elements *= n;
    }
    if (elements == 0) fail<data_error>("idx: ", where, " says ", text, " elements: it is empty");
    if (file.size() - header != elements) {
        fail<data_error>("idx: ", where, " says ", text, " elements, which take ", header + elements,
                         " bytes with the header; it has ", file.size());
    }
    file.erase(0, header);
    result.bytes = std::move(file);
    return result;
}

/// An uncompressed IDX file. Throws data_error as parse_idx, and if it cannot be read or has more than `limit` bytes.
inline idx_array read_idx(const std::filesystem::path& path, std::uint64_t limit = std::uint64_t{1} << 36) {
    return parse_idx(detail::read_file("idx", path, limit), path);
}

/// An image of a labelled_images, whose memory it is, and its class.
struct labelled_image {
    std::span<const std::uint8_t> pixels{};  // height x width x channels
    std::int32_t label = 0;
};

/// Images and their labels: a map_source (data_loader.hpp).
class labelled_images {
  public:
    /// images: (number, height, width) or (number, height, width, channels); labels: (number), below `classes`. Throws
    /// data_error if they do not fit together.
    labelled_images(idx_array images, idx_array labels, extent classes)
        : images_(std::move(images)), labels_(std::move(labels)) {
        const auto text = [](const idx_array& a) {
            std::string t;
            for (const extent e : a.extents) t += (t.empty() ? "" : " x ") + std::to_string(e);
            return t;
        };
        if (images_.extents.size() < 3)
            fail<data_error>("idx: ", images_.name, " has ", text(images_), " elements; expected number x height x width");
        if (labels_.extents.size() != 1)
            fail<data_error>("idx: ", labels_.name, " has ", text(labels_), " elements; expected one for each image");
        if (labels_.extents[0] != images_.extents[0]) {
            fail<data_error>("idx: ", images_.name, " has ", images_.extents[0], " images, ", labels_.name, " has ",
                             labels_.extents[0], " labels");
        }
        for (extent i = 0; i < size(); ++i) {
            if ((*this)[i].label >= classes) {
                fail<data_error>("idx: ", labels_.name, ": label number ", i, " is ", (*this)[i].label,
                                 "; expected 0 to ", classes - 1);
            }
        }
    }

    /// The number of images.
    extent size() const { return images_.extents[0]; }
    extent height() const { return images_.extents[1]; }
    extent width() const { return images_.extents[2]; }
    extent channels() const { return images_.extents.size() == 4 ? images_.extents[3] : 1; }
    labelled_image operator[](extent index) const {
        const auto bytes = static_cast<std::size_t>(height() * width() * channels());
        return {images_.elements().subspan(static_cast<std::size_t>(index) * bytes, bytes),
                labels_.elements()[static_cast<std::size_t>(index)]};
    }

  private:
    idx_array images_, labels_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
