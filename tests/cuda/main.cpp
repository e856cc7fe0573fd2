// SPDX-License-Identifier: MIT
/// \file
/// The main function of test_cuda: exits with 77 (skipped) if there is no GPU.
///
/// It runs the tests of the CPU and of the emulated GPU, on host memory. So that kernels can access it, operator new allocates
/// pinned memory, and the stack and static data are pinned, too; pinned memory and GPU memory share an address space. Some GPUs can
/// access all host memory, by slow page faults: with HALFTONE_TEST_MEMORY=pageable in the environment no memory is pinned.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace {

/// Blocks of 64 bytes times a power of two, out of pinned slabs that are never given back.
class pinned_blocks {
  public:
    void begin() { is_on_ = true; }

    void* take(std::size_t bytes) {
        if (!is_on_ || is_inside_) return nullptr;
        std::size_t order = 0;
        while ((std::size_t{64} << order) < bytes + header) ++order;
        const std::lock_guard lock(mutex_);
        if (free_[order] == nullptr) refill(order);
        link* const block = free_[order];
        if (block == nullptr) return nullptr;
        free_[order] = block->next;
        ::new (block) std::size_t(order);
        return reinterpret_cast<char*>(block) + header;
    }
    bool give_back(void* p) {
        bool is_ours = false;
        for (int i = 0; i < slabs_ && !is_ours; ++i) is_ours = p >= slab_[i].begin && p < slab_[i].end;
        if (!is_ours) return false;
        char* const block = static_cast<char*>(p) - header;
        const std::size_t order = *reinterpret_cast<std::size_t*>(block);
        const std::lock_guard lock(mutex_);
        free_[order] = ::new (block) link{free_[order]};
        return true;
    }

  private:
    struct link {
        link* next;
    };
    struct range {
        char *begin, *end;
    };
    static constexpr std::size_t header = 64;  // so that blocks begin where vectors want them
    static constexpr std::size_t slab_bytes = std::size_t{64} << 20;

    void refill(std::size_t order) {
        const std::size_t each = std::size_t{64} << order,
                          bytes = each < slab_bytes ? (each < (1 << 20) ? 1 << 20 : each) : each;
        if (rest_.end - rest_.begin < static_cast<std::ptrdiff_t>(bytes)) {
            if (slabs_ == most_slabs) return;
            const std::size_t slab = bytes < slab_bytes ? slab_bytes : bytes;
            void* data = nullptr;
            is_inside_ = true;  // what the runtime itself allocates
            // A test may be capturing a stream; host memory does not affect a capture.
            cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
            cudaThreadExchangeStreamCaptureMode(&mode);
            const cudaError_t code = cudaHostAlloc(&data, slab, cudaHostAllocPortable | cudaHostAllocMapped);
            cudaThreadExchangeStreamCaptureMode(&mode);
            is_inside_ = false;
            if (code != cudaSuccess) return;
            rest_ = {static_cast<char*>(data), static_cast<char*>(data) + slab};
            slab_[slabs_] = rest_;
            ++slabs_;
        }
        for (std::size_t at = 0; at + each <= bytes; at += each)
            free_[order] = ::new (rest_.begin + at) link{free_[order]};
        rest_.begin += bytes;
    }

    static constexpr int most_slabs = 4096;
    static inline thread_local bool is_inside_ = false;
    std::atomic<bool> is_on_{false};
    std::mutex mutex_;
    link* free_[48]{};
    range slab_[most_slabs]{}, rest_{};
    std::atomic<int> slabs_{0};
};

pinned_blocks& blocks() {
    static pinned_blocks* const all =
        ::new (std::malloc(sizeof(pinned_blocks))) pinned_blocks;  // outlives every destructor
    return *all;
}

}  // namespace

void* operator new(std::size_t bytes) {
    void* p = blocks().take(bytes);
    if (p == nullptr) p = std::malloc(bytes == 0 ? 1 : bytes);
    if (p == nullptr) throw std::bad_alloc();
    return p;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    void* p = static_cast<std::size_t>(alignment) <= 64 ? blocks().take(bytes) : nullptr;
    if (p == nullptr)
        p = std::aligned_alloc(static_cast<std::size_t>(alignment), (bytes + static_cast<std::size_t>(alignment)) &
                                                                        ~(static_cast<std::size_t>(alignment) - 1));
    if (p == nullptr) throw std::bad_alloc();
    return p;
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    try {
        return operator new(bytes, alignment);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void operator delete(void* p) noexcept {
    if (p != nullptr && !blocks().give_back(p)) std::free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }

namespace {

/// Pins the static data of the program itself, constants too: their pages become its own before.
int pin_segments(dl_phdr_info* info, std::size_t, void*) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) != 0) continue;
        const std::uintptr_t begin = (info->dlpi_addr + segment.p_vaddr) & ~(page - 1);
        const std::uintptr_t end = (info->dlpi_addr + segment.p_vaddr + segment.p_memsz + page - 1) & ~(page - 1);
        auto* const memory = reinterpret_cast<volatile char*>(begin);
        if (mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0) continue;
        for (std::uintptr_t at = 0; at < end - begin; at += page) memory[at] = memory[at];
        if (cudaHostRegister(reinterpret_cast<void*>(begin), end - begin, cudaHostRegisterPortable) != cudaSuccess) {
            std::printf("static data at %p is not pinned: %s\n", reinterpret_cast<void*>(begin),
                        cudaGetErrorName(cudaGetLastError()));
        }
    }
    return 1;  // the program comes first, and is all that is wanted
}

struct arguments {
    int argc;
    char** argv;
    int result = 1;
};
void* run_tests(void* p) {
    auto* const a = static_cast<arguments*>(p);
    a->result = doctest::Context(a->argc, a->argv).run();
    return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
    int count = 0;
    if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
        std::printf("skipped: no usable GPU (%s)\n", code != cudaSuccess ? cudaGetErrorName(code) : "none is visible");
        return 77;
    }
    arguments a{argc, argv};
    const char* const wanted = std::getenv("HALFTONE_TEST_MEMORY");
    if (wanted != nullptr && std::strcmp(wanted, "pageable") == 0) {
        int reaches_all = 0;
        cudaDeviceGetAttribute(&reaches_all, cudaDevAttrPageableMemoryAccess, 0);
        if (reaches_all == 0) {
            std::puts("HALFTONE_TEST_MEMORY=pageable: this GPU does not reach the host's memory");
            return 1;
        }
        run_tests(&a);
        return a.result;
    }
    dl_iterate_phdr(pin_segments, nullptr);
    constexpr std::size_t stack_bytes = std::size_t{64} << 20;
    void* stack = nullptr;
    pthread_attr_t how;
    pthread_t thread;
    if (cudaHostAlloc(&stack, stack_bytes, cudaHostAllocPortable) != cudaSuccess || pthread_attr_init(&how) != 0 ||
        pthread_attr_setstack(&how, stack, stack_bytes) != 0) {
        std::puts("no pinned memory for a stack");
        return 1;
    }
    blocks().begin();
    if (pthread_create(&thread, &how, run_tests, &a) != 0 || pthread_join(thread, nullptr) != 0) {
        std::puts("no thread for the tests");
        return 1;
    }
    return a.result;
}
