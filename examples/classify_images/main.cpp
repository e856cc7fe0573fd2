// SPDX-License-Identifier: MIT
/// \file
/// Trains the same small convolutional network on images in IDX files (MNIST, Fashion-MNIST) from the same weights under
/// full_fp32, amp_fp16, amp_bf16, and amp_bf16 with less memory, and compares accuracy and cost. `classify_images --help`
/// lists the options; without any it trains on Fashion-MNIST as Debian's package dataset-fashion-mnist installs it.
///
/// Exit codes: 0; 2 for invalid arguments, data or output folder, with one line and nothing left behind; 3 for a device that
/// does not exist; 1 for everything else.
#include <halftone/exec/cpu/cpu.hpp>

#include "../classify/report.hpp"
#include "data.hpp"
#if defined(CLASSIFY_IMAGES_GZIP)
#include <halftone/data/gzip.hpp>
#endif

extern template classifier_result run<ht::full_fp32, memory_use::usual>(ht::cpu&, const std::string&, const image_data&,
                                                                        const run_options&);
extern template classifier_result run<ht::amp_fp16, memory_use::usual>(ht::cpu&, const std::string&, const image_data&,
                                                                       const run_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::usual>(ht::cpu&, const std::string&, const image_data&,
                                                                       const run_options&);
extern template classifier_result run<ht::amp_bf16, memory_use::small>(ht::cpu&, const std::string&, const image_data&,
                                                                       const run_options&);

namespace {

/// The file with this name in a folder, or the same compressed.
ht::idx_array read(const std::filesystem::path& folder, const std::string& name) {
    const std::filesystem::path plain = folder / name, compressed = folder / (name + ".gz");
    if (std::filesystem::exists(plain) || !std::filesystem::exists(compressed)) return ht::read_idx(plain);
#if defined(CLASSIFY_IMAGES_GZIP)
    return ht::parse_idx(ht::read_gzip(compressed), compressed);
#else
    refuse("this program was built without zlib and cannot read ", compressed.string(), "; decompress it with gunzip");
#endif
}

image_data read_data(const std::filesystem::path& folder, ht::extent classes) {
    if (!std::filesystem::is_directory(folder)) {
        refuse("--data: there is no folder ", folder.string(),
               "; Debian's package dataset-fashion-mnist has one, or name that of four IDX files");
    }
    image_data data{{read(folder, "train-images-idx3-ubyte"), read(folder, "train-labels-idx1-ubyte"), classes},
                    {read(folder, "t10k-images-idx3-ubyte"), read(folder, "t10k-labels-idx1-ubyte"), classes},
                    classes};
    const auto size = [](const ht::labelled_images& i) { return ht::shape<3>{i.height(), i.width(), i.channels()}; };
    if (!(size(data.training) == size(data.test)))
        refuse("--data: training images are ", size(data.training), ", test images ", size(data.test));
    if (data.training.height() < 4 || data.training.width() < 4)
        refuse("--data: images are ", size(data.training), "; expected 4 x 4 or more");
    return data;
}

classifier_result run_policy(const std::string& name, const image_data& data, run_options o, seen_runs::run& seen) {
    o.seen = &seen;
    if (o.device == "cuda") return run_on_gpu(name, data, o);
    ht::cpu device{{.threads = o.threads, .executor = seen.view.executor()}};
    return run_named(device, name, data, o);
}

}  // namespace

int main(int argc, char** argv) {
    return run_main("classify_images", "these sizes and this data", [&] {
        run_options o;
        o.out = "classify_images_out";
        std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
        ht::extent classes = 10;
        CLI::App app{"Trains a small convolutional network on images in IDX files under several policies, and compares them."};
        app.add_option("--data", folder,
                       "folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                       "t10k-labels-idx1-ubyte, or the same with .gz");
        app.add_option("--classes", classes, "labels are below this number");
        add_run_options(app, o);
        if (!parse(app, argc, argv)) return 0;
        check(o);
        check_range("--classes", classes, 2, 256);
        const image_data data = read_data(folder, classes);
        std::cout << data.training.size() << " training images, " << data.test.size() << " test images of "
                  << data.training.height() << " x " << data.training.width() << '\n';
        run_all("classify_images", o, {{"data", folder.string()}},
                [&](const std::string& name, seen_runs::run& seen) { return run_policy(name, data, o, seen); });
        return 0;
    });
}
