// A CUDA runtime without a GPU: the device `cuda` runs on it, with kernels on the host. It delays work, protects the GPU's memory from host code, checks
// callers against the runtime's documentation, and fails on request.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/device/cuda/host_launch.hpp>

namespace xtrain::testing {

struct fake_cuda_config {
  int devices = 1;
  std::size_t memory = std::size_t{256} << 20;  ///< bytes of each device
  int driver = 13000;                           ///< 0: absent
  int status = cuda_status::success;            ///< of cudaGetDeviceCount
  int probe = cuda_status::success;             ///< whether the kernels have code for the devices
  bool has_wait_value = true;                   ///< streams can wait for a word in memory
  const gpu_vendor* vendor = &nvidia;           ///< decides names
  int architecture = 90, warp_width = 32;       ///< of the devices
  double kernel_ms = 1;                         ///< duration of a launch in timed events
  bool is_late = true;                          ///< work is done only when waited for; otherwise when queued, if possible
  std::uint64_t seed = 1;                       ///< of the host runner
};

/// One instance at a time: the table's functions find it globally.
class fake_cuda {
 public:
  explicit fake_cuda(const fake_cuda_config& settings = {}) : settings_(settings), table_(make_table(settings)) {
    for (int d = 0; d < settings.devices; ++d) memories_.push_back(std::make_unique<device_memory>(settings.memory));
    self() = this;
  }
  ~fake_cuda() { self() = nullptr; }
  fake_cuda(const fake_cuda&) = delete;
  fake_cuda& operator=(const fake_cuda&) = delete;

  [[nodiscard]] const cuda_runtime& runtime() const { return table_; }
  [[nodiscard]] cuda_context open(int device = 0, std::size_t memory_limit = 0) const {
    return cuda_context(cuda_config{.device = device, .memory_limit = memory_limit, .runtime = &table_});
  }

  /// The n-th call from now, counted from 1, returns this status, without effect unless it releases or destroys.
  void fail_call(std::size_t n, int status) {
    const std::lock_guard lock(mutex_);
    calls_ = 0;
    failing_call_ = n;
    call_status_ = status;
  }
  /// The n-th work from now fails: every later call returns the status.
  void fail_work(std::size_t n, int status) {
    const std::lock_guard lock(mutex_);
    works_ = 0;
    failing_work_ = n;
    work_status_ = status;
  }
  /// Since fail_call or fail_work.
  [[nodiscard]] std::size_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  [[nodiscard]] std::size_t works() const {
    const std::lock_guard lock(mutex_);
    return works_;
  }
  [[nodiscard]] std::size_t calls_of(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [entry, count] : counts_)
      if (settings_.vendor->named(entry) == name) return count;
    return 0;
  }

  /// Violations of the runtime's documentation by callers, a line each.
  [[nodiscard]] std::string violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  /// Objects that were not destroyed; empty: no leaks.
  [[nodiscard]] std::string leaks() const {
    const std::lock_guard lock(mutex_);
    std::size_t blocks = 0;
    for (const auto& memory : memories_) blocks += memory->blocks.size();
    std::string all;
    const auto add = [&](std::size_t n, const char* what) {
      if (n != 0) all += concat(n, " ", what, "; ");
    };
    add(blocks, "allocations");
    add(pinned_.size(), "blocks of pinned memory");
    add(queues_.size(), "streams");
    add(events_.size(), "events");
    add(graphs_.size(), "graphs");
    add(executables_.size(), "executable graphs");
    return all;
  }

  /// Captured launches of kernels whose code was not loaded before: a GPU's driver loads it during the capture.
  [[nodiscard]] std::size_t loads_in_captures() const {
    const std::lock_guard lock(mutex_);
    return loads_in_captures_;
  }

  // for the fake of a library that queues work on streams

  /// Of the calling thread.
  [[nodiscard]] static int current_device() { return current(); }
  /// f(), while no other thread calls the runtime or does work.
  template <class F>
  auto locked(F&& f) {
    const std::lock_guard lock(mutex_);
    return f();
  }
  /// In locked(): queues work that is done when is_done() returns true; is_done() may access device memory.
  ///   returns  a problem; empty: queued
  [[nodiscard]] std::string queue_outside_work(cuda_queue_handle stream, int device, std::function<bool()> is_done) {
    const auto found = queues_.find(stream);
    if (found == queues_.end()) return "there is no such stream";
    if (found->second->device != device) return concat("the stream is of device ", found->second->device, ", the work of device ", device);
    if (found->second->is_capturing) return "the stream captures";
    (void)add(*found->second, {.until = std::move(is_done)});
    return {};
  }
  /// In locked(): queues work of that duration, or captures it.
  ///   code      of the kernel: a captured kernel must have run before
  ///   run()     may access device memory; returns a problem, or an empty string
  ///   returns   a problem; empty: queued
  [[nodiscard]] std::string queue_library_work(cuda_queue_handle stream, int device, const void* code, double milliseconds, std::function<std::string()> run) {
    const auto found = queues_.find(stream);
    if (found == queues_.end()) return "there is no such stream";
    queue& q = *found->second;
    if (q.device != device) return concat("the stream is of device ", q.device, ", the work of device ", device);
    note_load(code, device, q.is_capturing);
    (void)add(q, {.run = [this, run = std::move(run)] {
                    const std::string problem = run();
                    return problem.empty() ? cuda_status::success : violation(cuda_status::illegal_address, problem);
                  },
                  .milliseconds = milliseconds});
    return {};
  }
  /// In locked(): whether this thread captures.
  [[nodiscard]] bool thread_captures() const {
    return std::any_of(queues_.begin(), queues_.end(),
                       [](const auto& one) { return one.second->is_capturing && one.second->capturer == std::this_thread::get_id(); });
  }
  /// In is_done(): a queue does its next work, if possible.
  bool go_on(cuda_queue_handle stream) {
    const auto found = queues_.find(stream);
    return found != queues_.end() && advance(*std::shared_ptr<queue>(found->second));
  }
  /// In locked(), of a range on that device; empty: valid.
  [[nodiscard]] std::string problem_of(const void* at, std::size_t bytes, int device, const char* what) {
    if (bytes == 0) return {};
    if (memory_of(at) != memories_[static_cast<std::size_t>(device)].get()) return concat(what, " of memory that is not of device ", device);
    return problem_with(at, bytes, what);
  }

 private:
  static constexpr std::size_t guard_bytes = 256;
  static constexpr unsigned char guard_byte = 0xA5, fresh_byte = 0xff, released_byte = 0xfe;  // both are NaN in every type

  /// Memory that host code cannot access while no work is done.
  struct device_memory {
    explicit device_memory(std::size_t size) : bytes(size + (std::size_t{1} << 20)) {
      void* const mapped = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) throw std::bad_alloc();
      base = static_cast<unsigned char*>(mapped);
      limit = size;
    }
    ~device_memory() { ::munmap(base, bytes); }
    device_memory(const device_memory&) = delete;
    device_memory& operator=(const device_memory&) = delete;
    [[nodiscard]] bool contains(const void* at) const { return at >= base && at < base + bytes; }
    /// The block that contains the range, or the end of `blocks`.
    [[nodiscard]] auto block_of(const void* at, std::size_t size) const {
      const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(at) - base);
      auto after = blocks.upper_bound(offset);
      if (after == blocks.begin()) return blocks.end();
      --after;
      return offset + size <= after->first + after->second ? after : blocks.end();
    }
    unsigned char* base = nullptr;
    std::size_t bytes = 0, limit = 0, used = 0;
    std::map<std::size_t, std::size_t> blocks{};  // offset, size
  };
  /// Device memory is accessible during its lifetime.
  class open_wall {
   public:
    explicit open_wall(fake_cuda& of) : of_(of) { protect(PROT_READ | PROT_WRITE); }
    ~open_wall() { protect(PROT_NONE); }
    open_wall(const open_wall&) = delete;
    open_wall& operator=(const open_wall&) = delete;

   private:
    void protect(int how) {
      for (const auto& memory : of_.memories_) ::mprotect(memory->base, memory->bytes, how);
    }
    fake_cuda& of_;
  };

  struct queue;
  struct work {
    std::function<int()> run{};
    std::shared_ptr<queue> after{};  // or: until that queue has done `number` works
    std::size_t number = 0;
    std::uint32_t* word = nullptr;  // or: until the word is at least `least`
    std::uint32_t least = 0;
    std::function<bool()> until{};  // or: until it returns true
    double milliseconds = 0;
  };
  struct queue {
    int device = 0;
    bool is_advancing = false;  // queues may wait for each other
    std::deque<work> items{};
    std::size_t queued = 0, done = 0;
    double clock = 0;
    bool is_capturing = false, is_invalid = false;
    std::thread::id capturer{};
    std::vector<work> captured{};
  };
  struct event {
    int device = 0;
    std::shared_ptr<queue> of{};
    std::size_t number = 0;
    std::shared_ptr<double> reached{};  // time of a timed event
  };
  struct graph {
    int device = 0;
    std::vector<work> items{};
  };

  static fake_cuda*& self() {
    static fake_cuda* one = nullptr;
    return one;
  }
  static int& current() {
    static thread_local int device = 0;
    return device;
  }

  int violation(int status, const std::string& what) {
    violations_ += concat(settings_.vendor->named(what), "\n");
    return status;
  }
  /// Every entry begins with it; the caller holds the lock.
  ///   returns  the status to return instead of doing the work
  int enter(const char* name) {
    ++counts_[name];
    ++calls_;
    if (calls_ == failing_call_) return call_status_;
    return sticky_;
  }
  /// For entries that are forbidden in a capturing thread.
  int enter_outside_capture(const char* name) {
    if (const int status = enter(name)) return status;
    for (const auto& [handle, q] : queues_) {
      if (!q->is_capturing || q->capturer != std::this_thread::get_id()) continue;
      q->is_invalid = true;
      return violation(cuda_status::capture_unsupported, concat(name, " in a thread that captures"));
    }
    return cuda_status::success;
  }
  [[nodiscard]] std::shared_ptr<queue> queue_of(cuda_queue_handle stream, const char* name) {
    const auto found = queues_.find(stream);
    if (found == queues_.end()) {
      (void)violation(0, concat(name, ": there is no such stream"));
      return nullptr;
    }
    if (found->second->device != current()) {
      (void)violation(0, concat(name, ": the stream is of device ", found->second->device, ", the thread's device is ", current()));
      return nullptr;
    }
    return found->second;
  }
  [[nodiscard]] event* event_of(void* handle, const char* name) {
    const auto found = events_.find(handle);
    if (found != events_.end()) return found->second.get();
    (void)violation(0, concat(name, ": there is no such event"));
    return nullptr;
  }
  int add(queue& q, work item) {
    if (q.is_capturing) {
      if (q.capturer != std::this_thread::get_id())
        return violation(cuda_status::capture_invalidated, "work is queued by a thread that did not begin the capture");
      q.captured.push_back(std::move(item));
      return cuda_status::success;
    }
    q.items.push_back(std::move(item));
    ++q.queued;
    if (!settings_.is_late) {
      const open_wall open(*this);
      while (advance(q)) {
      }
    }
    return cuda_status::success;
  }

  /// Does the next work of a queue, or of the queue that it waits for. The wall is open.
  bool advance(queue& q) {
    if (q.items.empty() || q.is_advancing) return false;
    q.is_advancing = true;
    const bool has_advanced = advance_one(q);
    q.is_advancing = false;
    return has_advanced;
  }
  bool advance_one(queue& q) {
    if (sticky_ == cuda_status::success) {
      work& next = q.items.front();
      if (next.after && next.after->done < next.number) return advance(*next.after);
      if (next.word != nullptr &&
          static_cast<std::int32_t>(std::atomic_ref<std::uint32_t>(*next.word).load(std::memory_order_acquire) - next.least) < 0)
        return false;
      if (next.until && !next.until()) return false;
      if (next.run) {
        ++works_;
        sticky_ = works_ == failing_work_ ? work_status_ : next.run();
      }
    }
    q.clock += q.items.front().milliseconds;
    q.items.pop_front();
    ++q.done;
    return true;
  }
  int wait_for(std::unique_lock<std::mutex>& lock, const std::shared_ptr<queue>& q, std::size_t number) {
    auto since = std::chrono::steady_clock::now();
    while (q->done < number) {
      bool went_on = false;
      {
        const open_wall open(*this);
        while (q->done < number && advance(*q)) went_on = true;
      }
      if (q->done >= number) break;
      const auto now = std::chrono::steady_clock::now();
      if (went_on) since = now;
      if (now - since > std::chrono::seconds(60)) return violation(cuda_status::not_initialized, "nothing has gone on for a minute");
      changed_.wait_for(lock, std::chrono::microseconds(100));  // a host function writes a word
    }
    return sticky_;
  }

  // memory

  [[nodiscard]] device_memory* memory_of(const void* at) {
    for (const auto& memory : memories_)
      if (memory->contains(at)) return memory.get();
    return nullptr;
  }
  [[nodiscard]] bool is_pinned(const void* at, std::size_t bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(at);
    const auto after = pinned_.upper_bound(first);
    return after != pinned_.begin() && first + bytes <= std::prev(after)->first + std::prev(after)->second;
  }
  /// Of a range that work reads or writes.
  ///   returns  a problem; empty: valid
  [[nodiscard]] std::string problem_with(const void* at, std::size_t bytes, const char* what) {
    device_memory* const memory = memory_of(at);
    if (memory == nullptr || memory->block_of(at, bytes) != memory->blocks.end()) return {};
    return concat(what, " of ", bytes, " bytes outside what is allocated");
  }
  int allocate(void** result, std::size_t bytes) {
    device_memory& memory = *memories_[static_cast<std::size_t>(current())];
    const std::size_t rounded = (bytes + 255) / 256 * 256;
    std::size_t at = guard_bytes;
    for (const auto& [offset, size] : memory.blocks) {
      if (offset >= at + bytes + guard_bytes) break;
      at = offset + (size + 255) / 256 * 256 + guard_bytes;
    }
    if (memory.used + rounded > memory.limit || at + rounded + guard_bytes > memory.bytes) return cuda_status::out_of_memory;
    memory.used += rounded;
    memory.blocks[at] = bytes;
    const open_wall open(*this);
    std::memset(memory.base + at - guard_bytes, guard_byte, guard_bytes);
    std::memset(memory.base + at, fresh_byte, bytes);
    std::memset(memory.base + at + bytes, guard_byte, rounded - bytes + guard_bytes);
    *result = memory.base + at;
    return cuda_status::success;
  }
  int release(void* raw) {
    device_memory* const memory = memory_of(raw);
    const auto found = memory == nullptr ? std::map<std::size_t, std::size_t>::iterator{}
                                         : memory->blocks.find(static_cast<std::size_t>(static_cast<unsigned char*>(raw) - memory->base));
    if (memory == nullptr || found == memory->blocks.end()) return violation(cuda_status::invalid_value, "cudaFree of what is not allocated");
    const auto [at, bytes] = *found;
    const std::size_t rounded = (bytes + 255) / 256 * 256;
    const open_wall open(*this);
    const auto is_guard = [](unsigned char byte) { return byte == guard_byte; };
    if (!std::all_of(memory->base + at - guard_bytes, memory->base + at, is_guard))
      (void)violation(0, concat("memory before an allocation of ", bytes, " bytes was written"));
    if (!std::all_of(memory->base + at + bytes, memory->base + at + rounded + guard_bytes, is_guard))
      (void)violation(0, concat("memory after an allocation of ", bytes, " bytes was written"));
    std::memset(memory->base + at, released_byte, bytes);
    memory->used -= rounded;
    memory->blocks.erase(found);
    return cuda_status::success;
  }

  int copy(void* to, const void* from, std::size_t bytes, queue& q) {
    const bool host_only = memory_of(to) == nullptr && memory_of(from) == nullptr;
    if (host_only && !is_pinned(to, bytes) && !is_pinned(from, bytes)) return violation(cuda_status::invalid_value, "cudaMemcpyAsync from host to host memory");
    const auto problem = [this, to, from, bytes] {
      const std::string of_source = problem_with(from, bytes, "a read");
      return of_source.empty() ? problem_with(to, bytes, "a write") : of_source;
    };
    if (const std::string now = problem(); !now.empty()) return violation(cuda_status::invalid_value, concat("cudaMemcpyAsync: ", now));
    for (const void* const side : {static_cast<const void*>(to), from})
      if (q.is_capturing && memory_of(side) == nullptr && !is_pinned(side, bytes)) {
        q.is_invalid = true;
        return violation(cuda_status::capture_unsupported, "a captured copy from or to host memory that is not pinned");
      }
    return add(q, {.run = [this, problem, to, from, bytes] {
                 if (const std::string later = problem(); !later.empty()) return violation(cuda_status::illegal_address, concat("a queued copy: ", later));
                 std::memmove(to, from, bytes);
                 return cuda_status::success;
               }});
  }
  int launch(const cuda_launch& what, queue& q) {
    const auto* const entry = static_cast<const cuda_host_entry*>(what.entry);
    if (entry->is_entry != cuda_host_entry::mark) return violation(cuda_status::invalid_value, concat(what.kernel, ": not a kernel of the host runner"));
    const auto [x, y, z] = what.grid;
    const bool fits = x > 0 && y > 0 && z > 0 && y <= 65535 && z <= 65535 && what.threads > 0 && what.threads <= 1024 && what.argument_bytes <= 4096;
    if (!fits)
      return violation(cuda_status::invalid_configuration,
                       concat(what.kernel, ": ", x, " x ", y, " x ", z, " blocks of ", what.threads, " threads, ", what.argument_bytes, " bytes of arguments"));
    note_load(entry, q.device, q.is_capturing);
    const auto* const bytes = static_cast<const std::byte*>(what.argument);
    const auto argument = std::make_shared<std::vector<std::byte>>(bytes, bytes + what.argument_bytes);
    return add(q, {.run = [this, entry, argument, grid = what.grid, name = std::string(what.kernel)] {
                 try {
                   entry->run(argument->data(), grid, settings_.seed + launches_++);
                   return cuda_status::success;
                 } catch (const std::exception& e) {
                   return violation(cuda_status::launch_failure, concat(name, ": ", e.what()));
                 }
               },
                .milliseconds = settings_.kernel_ms});
  }

  void note_load(const void* code, int device, bool is_captured) {
    if (loaded_.emplace(code, device).second && is_captured) ++loads_in_captures_;
  }

  /// f(fake) under the lock, unless the call fails.
  template <class F>
  static int call(const char* name, F&& f) {
    fake_cuda& all = *self();
    const std::lock_guard lock(all.mutex_);
    if (const int status = all.enter(name)) return status;
    return f(all);
  }
  template <class F>
  static int call_outside_capture(const char* name, F&& f) {
    fake_cuda& all = *self();
    const std::lock_guard lock(all.mutex_);
    if (const int status = all.enter_outside_capture(name)) return status;
    return f(all);
  }
  /// f(fake) even if the call fails: it releases something.
  template <class F>
  static int call_always(const char* name, F&& f) {
    fake_cuda& all = *self();
    const std::lock_guard lock(all.mutex_);
    const int status = all.enter(name), done = f(all);
    return status != cuda_status::success ? status : done;
  }
  /// f(fake, queue) for a stream.
  template <class F>
  static int call_on(cuda_queue_handle stream, const char* name, F&& f) {
    return call(name, [&](fake_cuda& all) {
      const auto q = all.queue_of(stream, name);
      return q ? f(all, q) : cuda_status::invalid_handle;
    });
  }

  [[nodiscard]] static cuda_runtime make_table(const fake_cuda_config& settings) {
    cuda_runtime t;
    t.vendor = settings.vendor;
    t.version = 13000;
    t.architectures = "900";
    t.warp_width = simt::warp_width;
    t.driver_version = [](int* version) {
      return call("cudaDriverGetVersion", [&](fake_cuda& all) { return *version = all.settings_.driver, cuda_status::success; });
    };
    t.device_count = [](int* count) {
      return call("cudaGetDeviceCount", [&](fake_cuda& all) { return *count = all.settings_.devices, all.settings_.status; });
    };
    t.set_device = [](int device) {
      return call("cudaSetDevice", [&](fake_cuda& all) {
        if (device < 0 || device >= all.settings_.devices) return all.violation(101, concat("cudaSetDevice(", device, ")"));
        current() = device;
        return cuda_status::success;
      });
    };
    t.device_name = [](char* name, std::size_t bytes, int) {
      return call("cudaGetDeviceProperties", [&](fake_cuda&) { return std::snprintf(name, bytes, "fake GPU"), cuda_status::success; });
    };
    t.device_attribute = [](int* value, int attribute, int) {
      return call("cudaDeviceGetAttribute", [&](fake_cuda& all) {
        *value = attribute == cuda_attribute::architecture_major   ? all.settings_.architecture / 10
                 : attribute == cuda_attribute::architecture_minor ? all.settings_.architecture % 10
                 : attribute == cuda_attribute::multiprocessors    ? 4
                 : attribute == cuda_attribute::warp_width         ? all.settings_.warp_width
                                                                   : 0;
        return cuda_status::success;
      });
    };
    t.probe_kernels = [] { return call("cudaFuncGetAttributes", [](fake_cuda& all) { return all.settings_.probe; }); };
    t.memory_info = [](std::size_t* free, std::size_t* total) {
      return call("cudaMemGetInfo", [&](fake_cuda& all) {
        const device_memory& memory = *all.memories_[static_cast<std::size_t>(current())];
        *free = memory.limit - memory.used;
        *total = memory.limit;
        return cuda_status::success;
      });
    };
    t.allocate = [](void** memory, std::size_t bytes) {
      return call_outside_capture("cudaMalloc", [&](fake_cuda& all) { return all.allocate(memory, bytes); });
    };
    t.release = [](void* memory) { return call_always("cudaFree", [&](fake_cuda& all) { return all.release(memory); }); };
    t.allocate_pinned = [](void** memory, std::size_t bytes) {
      return call_outside_capture("cudaHostAlloc", [&](fake_cuda& all) {
        *memory = ::operator new(bytes, std::align_val_t{4096});
        all.pinned_[reinterpret_cast<std::uintptr_t>(*memory)] = bytes;
        return cuda_status::success;
      });
    };
    t.release_pinned = [](void* memory) {
      return call_always("cudaFreeHost", [&](fake_cuda& all) {
        if (all.pinned_.erase(reinterpret_cast<std::uintptr_t>(memory)) == 0)
          return all.violation(cuda_status::invalid_value, "cudaFreeHost of what is not pinned");
        ::operator delete(memory, std::align_val_t{4096});
        return cuda_status::success;
      });
    };
    t.device_address = [](void** address, void* pinned) {
      return call("cudaHostGetDevicePointer", [&](fake_cuda& all) {
        if (!all.is_pinned(pinned, 1)) return all.violation(cuda_status::invalid_value, "cudaHostGetDevicePointer of what is not pinned");
        *address = pinned;
        return cuda_status::success;
      });
    };
    t.create_stream = [](cuda_queue_handle* stream) {
      return call("cudaStreamCreateWithFlags", [&](fake_cuda& all) {
        auto fresh = std::make_shared<queue>();
        fresh->device = current();
        *stream = reinterpret_cast<cuda_queue_handle>(fresh.get());
        all.queues_[*stream] = std::move(fresh);
        return cuda_status::success;
      });
    };
    t.destroy_stream = [](cuda_queue_handle stream) {
      return call_always("cudaStreamDestroy", [&](fake_cuda& all) {
        const auto q = all.queue_of(stream, "cudaStreamDestroy");
        if (!q) return cuda_status::invalid_handle;
        if (q->is_capturing) (void)all.violation(0, "cudaStreamDestroy of a stream that captures");
        all.queues_.erase(stream);
        return cuda_status::success;
      });
    };
    t.synchronize_stream = [](cuda_queue_handle stream) {
      fake_cuda& all = *self();
      std::unique_lock lock(all.mutex_);
      if (const int status = all.enter_outside_capture("cudaStreamSynchronize")) return status;
      const auto q = all.queue_of(stream, "cudaStreamSynchronize");
      return q ? all.wait_for(lock, q, q->queued) : cuda_status::invalid_handle;
    };
    t.create_event = [](void** handle) {
      return call("cudaEventCreateWithFlags", [&](fake_cuda& all) {
        auto fresh = std::make_unique<event>();
        fresh->device = current();
        *handle = fresh.get();
        all.events_[*handle] = std::move(fresh);
        return cuda_status::success;
      });
    };
    t.create_timed_event = [](void** handle) {
      return call("cudaEventCreate", [&](fake_cuda& all) {
        auto fresh = std::make_unique<event>();
        fresh->device = current();
        fresh->reached = std::make_shared<double>(0);
        *handle = fresh.get();
        all.events_[*handle] = std::move(fresh);
        return cuda_status::success;
      });
    };
    t.elapsed = [](float* milliseconds, void* begin, void* end) {
      return call("cudaEventElapsedTime", [&](fake_cuda& all) {
        const event *const b = all.event_of(begin, "cudaEventElapsedTime"), *const e = all.event_of(end, "cudaEventElapsedTime");
        if (b == nullptr || e == nullptr || !b->reached || !e->reached || !b->of || !e->of)
          return all.violation(cuda_status::invalid_handle, "cudaEventElapsedTime of events that are not timed, or were not recorded");
        if (b->of->done < b->number || e->of->done < e->number) return cuda_status::not_ready;
        *milliseconds = static_cast<float>(*e->reached - *b->reached);
        return cuda_status::success;
      });
    };
    t.destroy_event = [](void* handle) {
      return call_always("cudaEventDestroy", [&](fake_cuda& all) {
        return all.events_.erase(handle) == 1 ? cuda_status::success : all.violation(cuda_status::invalid_handle, "cudaEventDestroy: there is no such event");
      });
    };
    t.record_event = [](void* handle, cuda_queue_handle stream) {
      return call_on(stream, "cudaEventRecord", [&](fake_cuda& all, const std::shared_ptr<queue>& q) {
        event* const e = all.event_of(handle, "cudaEventRecord");
        if (e == nullptr) return cuda_status::invalid_handle;
        if (e->device != q->device) return all.violation(cuda_status::invalid_handle, "cudaEventRecord: the event and the stream are of different devices");
        if (q->is_capturing) return all.violation(cuda_status::capture_unsupported, "cudaEventRecord on a stream that captures");
        e->of = q;
        if (e->reached)
          (void)all.add(*q, {.run = [at = e->reached, of = q.get()] {
                          *at = of->clock;
                          return cuda_status::success;
                        }});
        e->number = q->queued;
        return cuda_status::success;
      });
    };
    t.synchronize_event = [](void* handle) {
      fake_cuda& all = *self();
      std::unique_lock lock(all.mutex_);
      if (const int status = all.enter_outside_capture("cudaEventSynchronize")) return status;
      const event* const e = all.event_of(handle, "cudaEventSynchronize");
      if (e == nullptr) return cuda_status::invalid_handle;
      if (!e->of) return all.violation(cuda_status::invalid_value, "cudaEventSynchronize of an event that was not recorded");
      return all.wait_for(lock, std::shared_ptr<queue>(e->of), std::size_t{e->number});
    };
    t.query_event = [](void* handle) {  // not counted: a watching thread calls it at any time
      fake_cuda& all = *self();
      const std::lock_guard lock(all.mutex_);
      const event* const e = all.event_of(handle, "cudaEventQuery");
      if (e == nullptr || !e->of) return cuda_status::invalid_handle;
      const std::shared_ptr<queue> q = e->of;
      const std::size_t number = e->number;
      const open_wall open(all);
      while (q->done < number && all.advance(*q)) {
      }
      return q->done < number ? cuda_status::not_ready : all.sticky_;
    };
    t.wait_event = [](cuda_queue_handle stream, void* handle) {
      return call_on(stream, "cudaStreamWaitEvent", [&](fake_cuda& all, const std::shared_ptr<queue>& q) {
        const event* const e = all.event_of(handle, "cudaStreamWaitEvent");
        if (e == nullptr) return cuda_status::invalid_handle;
        if (!e->of) return all.violation(cuda_status::invalid_value, "cudaStreamWaitEvent for an event that was not recorded");
        if (q->is_capturing) return all.violation(cuda_status::capture_unsupported, "cudaStreamWaitEvent on a stream that captures");
        return all.add(*q, {.after = e->of, .number = e->number});
      });
    };
    if (settings.has_wait_value)
      t.wait_value = [](cuda_queue_handle stream, void* address, std::uint32_t least) {
        return call_on(stream, "cuStreamWaitValue32", [&](fake_cuda& all, const std::shared_ptr<queue>& q) {
          if (!all.is_pinned(address, 4) || reinterpret_cast<std::uintptr_t>(address) % 4 != 0)
            return all.violation(cuda_status::invalid_value, "cuStreamWaitValue32 for a word that is not pinned and aligned");
          if (q->is_capturing) return all.violation(cuda_status::capture_unsupported, "cuStreamWaitValue32 on a stream that captures");
          return all.add(*q, {.word = static_cast<std::uint32_t*>(address), .least = least});
        });
      };
    t.copy = [](void* to, const void* from, std::size_t bytes, cuda_queue_handle stream) {
      return call_on(stream, "cudaMemcpyAsync", [&](fake_cuda& all, const std::shared_ptr<queue>& q) { return all.copy(to, from, bytes, *q); });
    };
    t.fill_zero = [](void* to, std::size_t bytes, cuda_queue_handle stream) {
      return call_on(stream, "cudaMemsetAsync", [&](fake_cuda& all, const std::shared_ptr<queue>& q) {
        if (all.memory_of(to) == nullptr && !all.is_pinned(to, bytes)) return all.violation(cuda_status::invalid_value, "cudaMemsetAsync of host memory");
        if (const std::string problem = all.problem_with(to, bytes, "a write"); !problem.empty())
          return all.violation(cuda_status::invalid_value, concat("cudaMemsetAsync: ", problem));
        return all.add(*q, {.run = [&all, to, bytes] {
                         if (const std::string later = all.problem_with(to, bytes, "a write"); !later.empty())
                           return all.violation(cuda_status::illegal_address, concat("a queued fill: ", later));
                         std::memset(to, 0, bytes);
                         return cuda_status::success;
                       }});
      });
    };
    t.launch = [](const cuda_launch& what, cuda_queue_handle stream) {
      return call_on(stream, "cudaLaunchKernel", [&](fake_cuda& all, const std::shared_ptr<queue>& q) { return all.launch(what, *q); });
    };
    t.load_kernel = [](const cuda_launch& what) {
      return call_outside_capture("cudaFuncGetAttributes", [&](fake_cuda& all) {
        all.note_load(what.entry, current(), false);
        return cuda_status::success;
      });
    };
    t.begin_capture = [](cuda_queue_handle stream) {
      return call_on(stream, "cudaStreamBeginCapture", [&](fake_cuda& all, const std::shared_ptr<queue>& q) {
        if (q->is_capturing) return all.violation(cuda_status::invalid_value, "cudaStreamBeginCapture on a stream that captures");
        q->is_capturing = true;
        q->is_invalid = false;
        q->capturer = std::this_thread::get_id();
        q->captured.clear();
        return cuda_status::success;
      });
    };
    t.end_capture = [](cuda_queue_handle stream, void** handle) {
      return call_always("cudaStreamEndCapture", [&](fake_cuda& all) {
        const auto q = all.queue_of(stream, "cudaStreamEndCapture");
        if (!q) return cuda_status::invalid_handle;
        if (!q->is_capturing) return all.violation(cuda_status::invalid_value, "cudaStreamEndCapture on a stream that does not capture");
        if (q->capturer != std::this_thread::get_id()) return all.violation(906, "cudaStreamEndCapture in another thread than began it");
        q->is_capturing = false;
        *handle = nullptr;
        if (q->is_invalid) return cuda_status::capture_invalidated;
        auto fresh = std::make_shared<graph>(graph{q->device, std::move(q->captured)});
        *handle = fresh.get();
        all.graphs_[*handle] = std::move(fresh);
        return cuda_status::success;
      });
    };
    t.destroy_graph = [](void* handle) {
      return call_always("cudaGraphDestroy", [&](fake_cuda& all) {
        return all.graphs_.erase(handle) == 1 ? cuda_status::success : all.violation(cuda_status::invalid_value, "cudaGraphDestroy: there is no such graph");
      });
    };
    t.instantiate = [](void** executable, void* handle) {
      return call_outside_capture("cudaGraphInstantiate", [&](fake_cuda& all) {
        const auto found = all.graphs_.find(handle);
        if (found == all.graphs_.end()) return all.violation(cuda_status::invalid_value, "cudaGraphInstantiate: there is no such graph");
        auto fresh = std::make_shared<graph>(*found->second);
        *executable = fresh.get();
        all.executables_[*executable] = std::move(fresh);
        return cuda_status::success;
      });
    };
    t.launch_graph = [](void* executable, cuda_queue_handle stream) {
      return call_on(stream, "cudaGraphLaunch", [&](fake_cuda& all, const std::shared_ptr<queue>& q) {
        const auto found = all.executables_.find(executable);
        if (found == all.executables_.end()) return all.violation(cuda_status::invalid_value, "cudaGraphLaunch: there is no such graph");
        if (found->second->device != q->device) return all.violation(cuda_status::invalid_value, "cudaGraphLaunch: the graph is of another device");
        for (const work& item : found->second->items)
          if (const int status = all.add(*q, item)) return status;
        return cuda_status::success;
      });
    };
    t.destroy_executable = [](void* executable) {
      return call_always("cudaGraphExecDestroy", [&](fake_cuda& all) {
        return all.executables_.erase(executable) == 1 ? cuda_status::success
                                                       : all.violation(cuda_status::invalid_value, "cudaGraphExecDestroy: there is no such graph");
      });
    };
    t.last_error = [] {
      const std::lock_guard lock(self()->mutex_);
      return self()->sticky_;
    };
    t.error_name = [](int status) { return self()->text_under_vendor(text_of(status).first); };
    t.error_text = [](int status) { return self()->text_under_vendor(text_of(status).second); };
    return t;
  }
  [[nodiscard]] const char* text_under_vendor(const char* text) {
    if (settings_.vendor->is_nvidia()) return text;
    const std::lock_guard lock(mutex_);
    return texts_.insert(settings_.vendor->named(text)).first->c_str();
  }
  [[nodiscard]] static std::pair<const char*, const char*> text_of(int status) {
    switch (status) {
      case cuda_status::success: return {"cudaSuccess", "no error"};
      case cuda_status::invalid_value: return {"cudaErrorInvalidValue", "invalid argument"};
      case cuda_status::out_of_memory: return {"cudaErrorMemoryAllocation", "out of memory"};
      case cuda_status::invalid_configuration: return {"cudaErrorInvalidConfiguration", "invalid configuration argument"};
      case cuda_status::driver_too_old: return {"cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"};
      case cuda_status::no_device: return {"cudaErrorNoDevice", "no CUDA-capable device is detected"};
      case cuda_status::invalid_handle: return {"cudaErrorInvalidResourceHandle", "invalid resource handle"};
      case cuda_status::not_ready: return {"cudaErrorNotReady", "device not ready"};
      case cuda_status::illegal_address: return {"cudaErrorIllegalAddress", "an illegal memory access was encountered"};
      case cuda_status::launch_failure: return {"cudaErrorLaunchFailure", "unspecified launch failure"};
      case cuda_status::capture_unsupported: return {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"};
      case cuda_status::capture_invalidated:
        return {"cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"};
      default: return {"cudaErrorUnknown", "unknown error"};
    }
  }

  fake_cuda_config settings_;
  cuda_runtime table_;
  mutable std::mutex mutex_{};
  std::condition_variable changed_{};
  std::vector<std::unique_ptr<device_memory>> memories_{};
  std::map<std::uintptr_t, std::size_t> pinned_{};
  std::map<cuda_queue_handle, std::shared_ptr<queue>> queues_{};
  std::map<void*, std::unique_ptr<event>> events_{};
  std::map<void*, std::shared_ptr<graph>> graphs_{}, executables_{};
  std::map<std::string, std::size_t> counts_{};
  std::set<std::pair<const void*, int>> loaded_{};  // code, device
  std::size_t loads_in_captures_ = 0;
  std::string violations_{};
  std::set<std::string> texts_{};  // of errors, at stable addresses
  int sticky_ = cuda_status::success;
  std::size_t calls_ = 0, failing_call_ = 0, works_ = 0, failing_work_ = 0;
  int call_status_ = 0, work_status_ = 0;
  std::uint64_t launches_ = 0;
};

}  // namespace xtrain::testing
