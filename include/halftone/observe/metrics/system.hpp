// SPDX-License-Identifier: MIT
/// \file
/// What the system says of a run, sampled on a thread of its own: the process's memory and processor time, and the
/// memory, use, power and temperature of NVIDIA GPUs.
///
///     ht::system_monitor monitor{{.seconds = 5}};
///     …
///     for (const ht::system_sample& s : monitor.take()) sink.scalar("system/rss_bytes", s.rss_bytes, step);
///
/// GPUs are asked by NVML, which is loaded at run time if there is a driver; nothing is linked. On systems without /proc
/// figures are 0.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/observe/metrics/sink.hpp>

#if !defined(_WIN32)
#include <dlfcn.h>
#include <unistd.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// A GPU at a moment.
struct gpu_sample {
    double used_bytes = 0, total_bytes = 0;
    double utilisation = 0;  ///< the fraction of time in which a kernel ran
    double watts = 0, celsius = 0;
};

/// A process and its GPUs at a moment.
struct system_sample {
    double seconds = 0;       ///< since the monitor was made
    double rss_bytes = 0;     ///< the process's memory that is resident
    double processors = 0;    ///< processor time since the sample before, for each second: 2.0 are two busy processors
    std::vector<gpu_sample> gpus;
};

/// Options of a monitor.
struct system_monitor_options {
    double seconds = 5;                 ///< between two samples
    std::size_t most_samples = 100000;  ///< that wait to be taken; later ones are dropped
};

namespace detail {

/// The functions of NVML that are used, declared as in nvml.h, which need not be there.
class nvml {
  public:
    nvml() {
#if !defined(_WIN32)
        library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        if (library_ == nullptr) return;
        int (*start)() = nullptr;
        int (*count)(unsigned*) = nullptr;
        int (*device)(unsigned, void**) = nullptr;
        const bool found = load(start, "nvmlInit_v2") && load(stop_, "nvmlShutdown") &&
                           load(count, "nvmlDeviceGetCount_v2") && load(device, "nvmlDeviceGetHandleByIndex_v2") &&
                           load(memory_, "nvmlDeviceGetMemoryInfo") &&
                           load(utilisation_, "nvmlDeviceGetUtilizationRates") &&
                           load(power_, "nvmlDeviceGetPowerUsage") && load(temperature_, "nvmlDeviceGetTemperature");
        if (!found || start() != 0) {
            stop_ = nullptr;
            return;
        }
        unsigned all = 0;
        if (count(&all) != 0) return;
        for (unsigned i = 0; i < all; ++i) {
            void* handle = nullptr;
            if (device(i, &handle) == 0) devices_.push_back(handle);
        }
#endif
    }
    nvml(const nvml&) = delete;
    nvml& operator=(const nvml&) = delete;
    ~nvml() {
#if !defined(_WIN32)
        if (stop_ != nullptr) stop_();
        if (library_ != nullptr) dlclose(library_);
#endif
    }

    std::vector<gpu_sample> sample() const {
        std::vector<gpu_sample> all;
        for (void* const device : devices_) {
            gpu_sample s;
            struct {
                unsigned long long total, free, used;
            } memory{};
            if (memory_(device, &memory) == 0)
                s.used_bytes = static_cast<double>(memory.used), s.total_bytes = static_cast<double>(memory.total);
            struct {
                unsigned gpu, memory;
            } rates{};
            if (utilisation_(device, &rates) == 0) s.utilisation = rates.gpu / 100.0;
            unsigned value = 0;
            if (power_(device, &value) == 0) s.watts = value / 1000.0;
            if (temperature_(device, 0, &value) == 0) s.celsius = value;
            all.push_back(s);
        }
        return all;
    }

  private:
#if !defined(_WIN32)
    template <class Function>
    bool load(Function*& to, const char* name) {
        to = reinterpret_cast<Function*>(dlsym(library_, name));
        return to != nullptr;
    }
#endif

    void* library_ = nullptr;
    int (*stop_)() = nullptr;
    int (*memory_)(void*, void*) = nullptr;
    int (*utilisation_)(void*, void*) = nullptr;
    int (*power_)(void*, unsigned*) = nullptr;
    int (*temperature_)(void*, int, unsigned*) = nullptr;
    std::vector<void*> devices_;
};

/// Bytes of the process's memory that are resident; 0 if unknown.
inline double resident_bytes() {
#if defined(_SC_PAGESIZE)
    std::ifstream statistics("/proc/self/statm");
    double all = 0, resident = 0;
    if (statistics >> all >> resident) return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
#endif
    return 0;
}
/// Processor time of all threads of the process.
inline double processor_seconds() {
#if defined(CLOCK_PROCESS_CPUTIME_ID)
    timespec t{};
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0)
        return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
#endif
    return 0;
}

}  // namespace detail

/// Samples while it lives, for the first time after `seconds`.
class system_monitor {
  public:
    /// Throws argument_error for a time that is not positive.
    explicit system_monitor(system_monitor_options options = {}) : options_(options) {
        if (!(options.seconds > 0))
            fail<argument_error>("system_monitor: ", options.seconds, " seconds between samples; expected more than 0");
        thread_ = std::thread([this] { run(); });
    }
    system_monitor(const system_monitor&) = delete;
    system_monitor& operator=(const system_monitor&) = delete;
    ~system_monitor() {
        {
            const std::lock_guard lock(mutex_);
            is_ending_ = true;
        }
        ends_.notify_one();
        thread_.join();
    }

    /// The samples since the last call.
    std::vector<system_sample> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(samples_, {});
    }

  private:
    using clock = std::chrono::steady_clock;

    void run() {
        const detail::nvml gpus;
        const clock::time_point begin = clock::now();
        double before = 0, processor = detail::processor_seconds();
        const auto pause = std::chrono::duration<double>(options_.seconds);
        while (true) {
            {
                std::unique_lock lock(mutex_);
                if (ends_.wait_for(lock, pause, [this] { return is_ending_; })) return;
            }
            system_sample s;
            s.seconds = std::chrono::duration<double>(clock::now() - begin).count();
            s.rss_bytes = detail::resident_bytes();
            const double used = detail::processor_seconds();
            s.processors = (used - processor) / std::max(s.seconds - before, 1e-9);
            before = s.seconds, processor = used;
            s.gpus = gpus.sample();
            const std::lock_guard lock(mutex_);
            if (samples_.size() < options_.most_samples) samples_.push_back(std::move(s));
        }
    }

    system_monitor_options options_;
    std::mutex mutex_;
    std::condition_variable ends_;
    bool is_ending_ = false;
    std::vector<system_sample> samples_;
    std::thread thread_;
};

/// Gives a sample to a sink at a step: "system/rss_bytes", "system/processors", and for GPU 0 "system/gpu0/used_bytes",
/// "system/gpu0/utilisation", "system/gpu0/watts" and "system/gpu0/celsius".
inline void write_system(metrics_sink& sink, const system_sample& s, std::int64_t step) {
    sink.scalar("system/rss_bytes", s.rss_bytes, step);
    sink.scalar("system/processors", s.processors, step);
    for (std::size_t i = 0; i < s.gpus.size(); ++i) {
        const std::string group = "system/gpu" + std::to_string(i) + "/";
        sink.scalar(group + "used_bytes", s.gpus[i].used_bytes, step);
        sink.scalar(group + "utilisation", s.gpus[i].utilisation, step);
        sink.scalar(group + "watts", s.gpus[i].watts, step);
        sink.scalar(group + "celsius", s.gpus[i].celsius, step);
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
