// SPDX-License-Identifier: MIT
/// \file
/// Trains the same small convolutional network on images in IDX files (MNIST, Fashion-MNIST) from the same weights under
/// full_fp32, amp_fp16, amp_bf16, and amp_bf16 with less memory, and compares accuracy and cost. `classify_images --help`
/// lists the options; without any it trains on Fashion-MNIST as Debian's package dataset-fashion-mnist installs it.
///
/// Exit codes: 0; 2 for invalid arguments, data or output folder, with one line and nothing left behind; 1 for everything
/// else.
#include "../classify/report.hpp"
#include "data.hpp"
#if defined(CLASSIFY_IMAGES_GZIP)
#include <halftone/data/gzip.hpp>
#endif

namespace {

/// The file with this name in a folder, or the same compressed.
ht::idx_array read(const std::filesystem::path& folder, const std::string& name) {
    const std::filesystem::path plain = folder / name, compressed = folder / (name + ".gz");
    if (std::filesystem::exists(plain) || !std::filesystem::exists(compressed)) return ht::read_idx(plain);
#if defined(CLASSIFY_IMAGES_GZIP)
    return ht::parse_idx(ht::read_gzip(compressed), compressed);
#else
    throw exit_with(2, "this program was built without zlib and cannot read " + compressed.string() + "; decompress it with gunzip");
#endif
}

image_data read_data(const std::filesystem::path& folder, ht::extent classes) {
    if (!std::filesystem::is_directory(folder)) {
        throw exit_with(2, "--data: there is no folder " + folder.string() +
                               "; Debian's package dataset-fashion-mnist has one, or name that of four IDX files");
    }
    image_data data{{read(folder, "train-images-idx3-ubyte"), read(folder, "train-labels-idx1-ubyte"), classes},
                    {read(folder, "t10k-images-idx3-ubyte"), read(folder, "t10k-labels-idx1-ubyte"), classes},
                    classes};
    const auto size = [](const ht::labelled_images& i) { return ht::shape<3>{i.height(), i.width(), i.channels()}; };
    if (!(size(data.training) == size(data.test))) {
        throw exit_with(2, ht::detail::sentence("--data: training images are ", size(data.training), ", test images ", size(data.test)));
    }
    if (data.training.height() < 4 || data.training.width() < 4)
        throw exit_with(2, ht::detail::sentence("--data: images are ", size(data.training), "; expected 4 x 4 or more"));
    return data;
}

run_result run_named(const std::string& name, const image_data& data, run_options o, seen_runs::run& seen) {
    o.seen = &seen;
    if (name == "full_fp32") return run<ht::full_fp32, memory_use::usual>(name, data, o);
    if (name == "amp_fp16") return run<ht::amp_fp16, memory_use::usual>(name, data, o);
    if (name == "amp_bf16") return run<ht::amp_bf16, memory_use::usual>(name, data, o);
    return run<ht::amp_bf16, memory_use::small>(name, data, o);
}

}  // namespace

extern template run_result run<ht::full_fp32, memory_use::usual>(const std::string&, const image_data&, const run_options&);
extern template run_result run<ht::amp_fp16, memory_use::usual>(const std::string&, const image_data&, const run_options&);
extern template run_result run<ht::amp_bf16, memory_use::usual>(const std::string&, const image_data&, const run_options&);
extern template run_result run<ht::amp_bf16, memory_use::small>(const std::string&, const image_data&, const run_options&);

int main(int argc, char** argv) {
    return end_of("classify_images", [&] {
        run_options o;
        o.out = "classify_images_out";
        std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
        ht::extent classes = 10;
        CLI::App app{"Trains a small convolutional network on images in IDX files under several policies, and compares them."};
        app.set_version_flag("--version", ht::detail::sentence(HALFTONE_VERSION_MAJOR, ".", HALFTONE_VERSION_MINOR, ".", HALFTONE_VERSION_PATCH));
        app.add_option("--data", folder,
                       "folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                       "t10k-labels-idx1-ubyte, or the same with .gz");
        app.add_option("--classes", classes, "labels are below this number");
        add_run_options(app, o);
        parse(app, argc, argv);
        check(o);
        if (classes < 2 || classes > 256) throw exit_with(2, ht::detail::sentence("--classes is ", classes, "; expected 2 to 256"));
        const image_data data = read_data(folder, classes);
        std::cout << data.training.size() << " training images, " << data.test.size() << " test images of "
                  << data.training.height() << " x " << data.training.width() << '\n';
        run_all("classify_images", o, {{"data", folder.string()}}, [&](const std::string& name, seen_runs::run& seen) { return run_named(name, data, o, seen); });
    });
}
