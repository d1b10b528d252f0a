// An AscendCL without an NPU: the device `npu` runs on it as on a card. Its streams work late, on threads of their own; host code cannot touch the device's
// memory; what the documentation asks of callers is checked, with its status codes; and it fails where a test wants it to.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/npu/npu.hpp>

namespace xtrain::testing {

/// What the fake pretends.
struct fake_ascend_config {
  int devices = 1;
  std::size_t memory = std::size_t{1} << 30;  ///< bytes of each device
  std::string soc = "Ascend910B3";
  cann_version version{9, 1, 0};
  int init_status = npu_status::success;
  int count_status = npu_status::success;
  bool has_callbacks = true;  ///< functions of the host by subscribed threads
  bool is_late = true;        ///< work is done only when somebody waits for it
  bool is_initialized = false;  ///< by another part of the process
};

/// One exists at a time: the table's functions have no other argument to find it by.
class fake_ascend {
 public:
  explicit fake_ascend(const fake_ascend_config& settings = {}) : settings_(settings), table_(make_table(settings)), is_initialized_(settings.is_initialized) {
    for (int d = 0; d < settings.devices; ++d) memories_.push_back(std::make_unique<device_memory>(settings.memory));
    self() = this;
    ++generation();
  }
  ~fake_ascend() {
    std::vector<std::shared_ptr<queue>> left;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [handle, q] : queues_) left.push_back(q);
      is_ending_ = true;
    }
    changed_.notify_all();
    for (const auto& q : left) q->worker.join();
    self() = nullptr;
  }
  fake_ascend(const fake_ascend&) = delete;
  fake_ascend& operator=(const fake_ascend&) = delete;

  [[nodiscard]] const npu_runtime& runtime() const { return table_; }
  [[nodiscard]] npu_context open(int device = 0, std::size_t memory_limit = 0) const {
    return npu_context(npu_config{.device = device, .memory_limit = memory_limit, .runtime = &table_});
  }

  /// The n-th call from now, counted from 1, returns this status. It does nothing, unless it releases or destroys. Polls do not count.
  void fail_call(std::size_t n, int status) {
    const std::lock_guard lock(mutex_);
    calls_ = 0;
    failing_call_ = n;
    call_status_ = status;
  }
  /// The n-th work that is done from now fails: nothing later is done on its device, and waits there return the status.
  void fail_work(std::size_t n, int status) {
    const std::lock_guard lock(mutex_);
    works_ = 0;
    failing_work_ = n;
    work_status_ = status;
  }
  /// The same, and from then on every call for that device returns the status, except those that release.
  void lose_device(std::size_t n, int status = npu_status::driver_error) {
    fail_work(n, status);
    const std::lock_guard lock(mutex_);
    loses_device_ = true;
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
  /// How often an entry was called, by AscendCL's name.
  [[nodiscard]] std::size_t calls_of(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }
  /// How often a thread waited: for a stream, an event, or a copy from or to memory that is not pinned.
  [[nodiscard]] std::size_t host_waits() const {
    const std::lock_guard lock(mutex_);
    return host_waits_;
  }

  /// What the documentation forbids and a caller did, a line each.
  [[nodiscard]] std::string violations() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  /// What was created and not destroyed; empty if nothing.
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
    add(subscriptions_.size(), "subscribed threads");
    return all;
  }

  // for the fakes of libraries that queue work on streams

  /// Of the calling thread; -1: none was set.
  [[nodiscard]] static int current_device() { return current(); }
  /// f(), while no other thread calls the runtime or does work.
  template <class F>
  auto locked(F&& f) {
    const std::lock_guard lock(mutex_);
    return f();
  }
  /// In locked(): records what a caller of a library did wrong, and returns the status.
  int note_violation(int status, const std::string& what) { return violation(status, what); }
  /// In locked(): what the next call for a message in this thread says.
  static void set_message(std::string text) { message() = std::move(text); }
  /// In locked(): queues work.
  ///   run()     has access to the devices' memory; returns a status, and another than success stops the device
  ///   returns   a status
  int queue_work(void* stream, const char* name, std::function<int()> run) {
    if (const int status = state_of_thread(name)) return status;
    const auto q = queue_of(stream, name);
    return q ? add(*q, {.run = std::move(run)}) : npu_status::wrong_context;
  }
  /// In locked(): queues work that is done once is_done() says so, which is asked again after each change.
  int queue_outside_work(void* stream, const char* name, std::function<bool()> is_done) {
    if (const int status = state_of_thread(name)) return status;
    const auto q = queue_of(stream, name);
    return q ? add(*q, {.until = std::move(is_done)}) : npu_status::wrong_context;
  }
  /// In is_done(): f() has access to the devices' memory.
  template <class F>
  void with_memory(F&& f) {
    const open_wall open(*this);
    f();
  }
  /// In is_done(): what was queued on the stream so far may be done; somebody waits for it.
  void go_on(void* stream) {
    const auto found = queues_.find(stream);
    if (found != queues_.end()) demand(*found->second, found->second->queued);
  }
  /// In locked(): another thread's is_done() may have changed.
  void notify() { changed_.notify_all(); }
  /// Outside of locked(): waits until f() holds, asked under the lock, or so long.
  template <class F>
  bool wait_until(F&& f, std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, at_most, f);
  }
  /// In locked(): the device of a stream is stopped: work is skipped, waits return the status.
  void stop_device(int device, int status) {
    for (const auto& [handle, q] : queues_)
      if (q->device == device && q->error == 0) q->error = status;
    errors_[device] = status;
    changed_.notify_all();
  }
  [[nodiscard]] int error_of_device(int device) const {
    const auto found = errors_.find(device);
    return found == errors_.end() ? 0 : found->second;
  }
  /// In locked(), of a range on that device; empty if nothing is wrong.
  [[nodiscard]] std::string problem_of(const void* at, std::size_t bytes, int device, const char* what) {
    if (bytes == 0) return {};
    if (memory_of(at) != memories_[static_cast<std::size_t>(device)].get()) return concat(what, " of memory that is not of device ", device);
    return problem_with(at, bytes, what);
  }
  [[nodiscard]] const fake_ascend_config& settings() const { return settings_; }
  [[nodiscard]] static fake_ascend& here() { return *self(); }

 private:
  static constexpr std::size_t guard_bytes = 256;
  static constexpr unsigned char guard_byte = 0xA5, fresh_byte = 0xff, released_byte = 0xfe;  // both are NaN in every type

  /// Memory that host code cannot touch while no work is being done.
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
    /// The block that holds the range; the end of `blocks` if none does.
    [[nodiscard]] auto block_of(const void* at, std::size_t size) const {
      const auto offset = static_cast<std::size_t>(static_cast<const unsigned char*>(at) - base);
      auto after = blocks.upper_bound(offset);
      if (after == blocks.begin()) return blocks.end();
      --after;
      return offset + size <= after->first + after->second ? after : blocks.end();
    }
    unsigned char* base = nullptr;
    std::size_t bytes = 0, limit = 0, used = 0;
    bool was_used = false;
    std::map<std::size_t, std::size_t> blocks{};  // offset, size
  };
  /// Device memory can be accessed while one exists; the lock is held.
  class open_wall {
   public:
    explicit open_wall(fake_ascend& of) : of_(of) {
      if (of_.open_walls_++ == 0) protect(PROT_READ | PROT_WRITE);
    }
    ~open_wall() {
      if (--of_.open_walls_ == 0) protect(PROT_NONE);
    }
    open_wall(const open_wall&) = delete;
    open_wall& operator=(const open_wall&) = delete;

   private:
    void protect(int how) {
      for (const auto& memory : of_.memories_)
        if (memory->was_used) ::mprotect(memory->base, memory->bytes, how);
    }
    fake_ascend& of_;
  };

  struct queue;
  struct callback {
    void (*function)(void*) = nullptr;
    void* argument = nullptr;
    bool blocks = true, is_offered = false, is_done = false;
  };
  struct work {
    std::function<int()> run{};
    std::shared_ptr<queue> after{};  // or: until that queue has done `number` works
    std::size_t number = 0;
    std::function<bool()> until{};         // or: until it returns true
    std::shared_ptr<callback> function{};  // or: until the subscribed thread has run it
    const void *reads = nullptr, *writes = nullptr;  // of copies and fills
  };
  struct queue {
    int device = 0;
    std::deque<work> items{};
    std::size_t queued = 0, done = 0;
    std::size_t wanted = 0;  // works that somebody waits for
    bool stops_on_failure = false, is_closed = false;
    int error = 0;
    std::uint64_t subscriber = 0;  // thread; 0: none
    std::thread worker{};
  };
  struct event {
    int device = 0;
    std::shared_ptr<queue> of{};
    std::size_t number = 0;
  };

  static fake_ascend*& self() {
    static fake_ascend* one = nullptr;
    return one;
  }
  static std::atomic<int>& generation() {
    static std::atomic<int> one{0};
    return one;
  }
  /// A thread has a device of this fake, not of an earlier one.
  static int& current() {
    static thread_local std::pair<int, int> device{0, -1};
    if (device.first != generation().load()) device = {generation().load(), -1};
    return device.second;
  }
  static std::string& message() {
    static thread_local std::string text;
    return text;
  }
  static bool& is_in_callback() {
    static thread_local bool one = false;
    return one;
  }
  [[nodiscard]] static std::uint64_t this_thread() { return static_cast<std::uint64_t>(::pthread_self()); }

  int violation(int status, const std::string& what) {
    violations_ += concat(what, " (", status, ")\n");
    message() = concat("EE1001: ", what);
    return status;
  }
  /// Every entry begins with it; the caller holds the lock.
  ///   returns  the status to return instead of doing the work
  int enter(const char* name) {
    ++counts_[name];
    ++calls_;
    if (calls_ == failing_call_) {
      message() = concat("EZ9999: ", name, " was made to fail");
      return call_status_;
    }
    if (is_lost(current())) return lost_;
    if (!is_initialized_) return violation(npu_status::not_initialized, concat(name, " before aclInit"));
    if (is_in_callback()) return violation(npu_status::not_supported, concat(name, " in a function of the host that a stream calls"));
    return npu_status::success;
  }
  [[nodiscard]] bool is_lost(int device) const { return lost_ != 0 && (device < 0 || device == lost_device_); }
  int state_of_thread(const char* name) {
    return current() < 0 ? violation(npu_status::no_context, concat(name, " in a thread without a device")) : npu_status::success;
  }
  [[nodiscard]] std::shared_ptr<queue> queue_of(void* stream, const char* name) {
    const auto found = queues_.find(stream);
    if (found == queues_.end()) {
      (void)violation(npu_status::wrong_context, concat(name, ": there is no such stream"));
      return nullptr;
    }
    if (found->second->device != current()) {
      (void)violation(npu_status::wrong_context,
                      concat(name, ": the stream is of device ", found->second->device, ", the thread's device is ", current()));
      return nullptr;
    }
    return found->second;
  }
  [[nodiscard]] event* event_of(void* handle, const char* name) {
    const auto found = events_.find(handle);
    if (found != events_.end()) return found->second.get();
    (void)violation(npu_status::invalid_handle, concat(name, ": there is no such event"));
    return nullptr;
  }
  int add(queue& q, work item) {
    q.items.push_back(std::move(item));
    ++q.queued;
    if (!settings_.is_late) demand(q, q.queued);
    return npu_status::success;
  }

  /// Somebody waits for so many works of a queue: it does them, and the works of other queues that they wait for.
  void demand(queue& q, std::size_t number) {
    if (number <= q.wanted) return;
    q.wanted = number;
    changed_.notify_all();
  }
  /// The thread of one stream.
  void work_on(const std::shared_ptr<queue>& q) {
    std::unique_lock lock(mutex_);
    current() = q->device;
    for (;;) {
      changed_.wait(lock, [&] { return is_ending_ || q->is_closed || (q->done < q->wanted && !q->items.empty()); });
      if (is_ending_ || q->is_closed) return;
      bool waits = false;
      const std::size_t before = q->done;
      {
        std::unique_ptr<const open_wall> open;  // for as many works as there are: to open it is slow
        while (!waits && q->done < q->wanted && !q->items.empty()) {
          if (!open && q->items.front().run) open = std::make_unique<const open_wall>(*this);
          waits = !advance(*q);
        }
      }
      if (q->done != before) changed_.notify_all();  // else threads that wait for each other would wake each other all the time
      if (waits) changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  }
  /// Does the next work. The wall is open if it runs something.
  ///   returns  false: it is to be asked again
  bool advance(queue& q) {
    work& next = q.items.front();
    if (q.error == 0) {
      if (next.after && next.after->done < next.number) {
        demand(*next.after, next.number);
        return false;
      }
      if (next.until && !next.until()) return false;
      if (next.function) {
        if (!std::exchange(next.function->is_offered, true)) changed_.notify_all();
        if (next.function->blocks && !next.function->is_done) return false;
      }
      if (next.run) {
        const int status = ++works_ == failing_work_ ? work_status_ : next.run();
        if (works_ == failing_work_ && loses_device_) lost_ = work_status_, lost_device_ = q.device;
        if (status != npu_status::success) fail_queue(q, status);
      }
    }
    q.items.pop_front();
    ++q.done;
    return true;
  }
  /// With ACL_STOP_ON_FAILURE nothing that follows on the device is done; otherwise the stream goes on, on data that is not there.
  void fail_queue(queue& q, int status) {
    if (!q.stops_on_failure) {
      late_errors_[&q] = status;
      return;
    }
    stop_device(q.device, status);
  }
  /// The host waits until the queue has done `number` works.
  int wait_for(std::unique_lock<std::mutex>& lock, const std::shared_ptr<queue>& q, std::size_t number, int milliseconds = -1) {
    const bool counts = milliseconds < 0 || q->done < number;
    demand(*q, number);
    if (milliseconds >= 0) {
      if (!changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return q->done >= number; })) return npu_status::stream_timeout;
    }
    if (counts) ++host_waits_;  // who looks again after a while waits once
    std::size_t seen = q->done;
    auto since = std::chrono::steady_clock::now();
    while (q->done < number) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      const auto now = std::chrono::steady_clock::now();
      if (q->done != seen || is_lost(q->device)) since = now;
      seen = q->done;
      if (now - since > std::chrono::seconds(60)) return violation(npu_status::stream_timeout, "nothing has gone on for a minute");
    }
    if (q->error != 0) message() = concat("EZ9999: a task of a stream on device ", q->device, " has failed");
    if (q->error == 0)
      if (const auto late = late_errors_.find(q.get()); late != late_errors_.end()) {
        const int status = late->second;
        late_errors_.erase(late);
        return status;
      }
    return q->error;
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
  ///   returns  what is wrong; empty if nothing
  [[nodiscard]] std::string problem_with(const void* at, std::size_t bytes, const char* what) {
    device_memory* const memory = memory_of(at);
    if (memory == nullptr || memory->block_of(at, bytes) != memory->blocks.end()) return {};
    return concat(what, " of ", bytes, " bytes outside what is allocated");
  }
  int allocate(void** result, std::size_t bytes) {
    if (bytes == 0) return violation(npu_status::invalid_parameter, "aclrtMalloc of 0 bytes");
    device_memory& memory = *memories_[static_cast<std::size_t>(current())];
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    std::size_t at = guard_bytes;
    for (const auto& [offset, size] : memory.blocks) {
      if (offset >= at + rounded + guard_bytes) break;
      at = offset + (size + 63) / 64 * 64 + guard_bytes;
    }
    if (memory.used + rounded > memory.limit || at + rounded + guard_bytes > memory.bytes) return npu_status::out_of_memory;
    memory.used += rounded;
    memory.blocks[at] = bytes;
    memory.was_used = true;
    const open_wall open(*this);
    std::memset(memory.base + at - guard_bytes, guard_byte, guard_bytes);
    std::memset(memory.base + at, fresh_byte, bytes);
    std::memset(memory.base + at + bytes, guard_byte, rounded - bytes + guard_bytes);
    *result = memory.base + at;
    return npu_status::success;
  }
  int release(void* raw) {
    if (raw == nullptr) return violation(npu_status::invalid_parameter, "aclrtFree of a null address");
    device_memory* const memory = memory_of(raw);
    const auto found = memory == nullptr ? std::map<std::size_t, std::size_t>::iterator{}
                                         : memory->blocks.find(static_cast<std::size_t>(static_cast<unsigned char*>(raw) - memory->base));
    if (memory == nullptr || found == memory->blocks.end()) return violation(npu_status::runtime_parameter, "aclrtFree of what is not allocated");
    const auto [at, bytes] = *found;
    for (const auto& [handle, q] : queues_)
      for (const work& item : q->items)
        for (const void* const used : {item.reads, item.writes})
          if (q->error == 0 && used >= memory->base + at && used < memory->base + at + bytes)
            (void)violation(0, "aclrtFree, which does not wait, of memory that queued work uses");
    const std::size_t rounded = (bytes + 63) / 64 * 64;
    const open_wall open(*this);
    const auto is_guard = [](unsigned char byte) { return byte == guard_byte; };
    if (!std::all_of(memory->base + at - guard_bytes, memory->base + at, is_guard))
      (void)violation(0, concat("memory before an allocation of ", bytes, " bytes was written"));
    if (!std::all_of(memory->base + at + bytes, memory->base + at + rounded + guard_bytes, is_guard))
      (void)violation(0, concat("memory after an allocation of ", bytes, " bytes was written"));
    std::memset(memory->base + at, released_byte, bytes);
    memory->used -= rounded;
    memory->blocks.erase(found);
    return npu_status::success;
  }
  int copy(std::unique_lock<std::mutex>& lock, void* to, std::size_t capacity, const void* from, std::size_t bytes, int kind, void* stream) {
    static constexpr const char* name = "aclrtMemcpyAsync";
    if (const int status = enter(name)) return status;
    if (const int status = state_of_thread(name)) return status;
    const auto q = queue_of(stream, name);
    if (!q) return npu_status::wrong_context;
    if (to == nullptr || from == nullptr || bytes == 0 || capacity < bytes)
      return violation(npu_status::runtime_parameter, concat(name, " of ", bytes, " bytes to ", capacity));
    const bool is_to_device = memory_of(to) != nullptr, is_from_device = memory_of(from) != nullptr;
    const int right = is_from_device ? (is_to_device ? npu_copy::within : npu_copy::to_host) : is_to_device ? npu_copy::to_device : npu_copy::host_to_host;
    if (kind != right) return violation(npu_status::runtime_parameter, concat(name, ": kind ", kind, " for addresses of kind ", right));
    if (kind == npu_copy::host_to_host) return violation(npu_status::not_supported, concat(name, " from host to host memory"));
    for (const auto& [at, what] : {std::pair{static_cast<const void*>(to), "a write"}, std::pair{from, "a read"}}) {
      if (memory_of(at) == nullptr) continue;
      if (const std::string wrong = problem_of(at, bytes, q->device, what); !wrong.empty())
        return violation(npu_status::runtime_parameter, concat(name, ": ", wrong));
    }
    const void* const host = is_to_device ? (is_from_device ? nullptr : from) : to;
    (void)add(*q, {.run =
                       [this, to, from, bytes] {
                         for (const auto& [at, what] : {std::pair{static_cast<const void*>(to), "a write"}, std::pair{from, "a read"}})
                           if (const std::string later = problem_with(at, bytes, what); !later.empty())
                             return violation(npu_status::ai_core_exception, concat("a queued copy: ", later));
                         std::memmove(to, from, bytes);
                         return npu_status::success;
                       },
                   .reads = from,
                   .writes = to});
    return host == nullptr || is_pinned(host, bytes) ? npu_status::success : wait_for(lock, q, q->queued);  // the call itself waits
  }

  // what the table's entries have in common

  /// f(fake) under the lock, unless the call fails.
  template <class F>
  static int call(const char* name, F&& f) {
    fake_ascend& all = *self();
    const std::lock_guard lock(all.mutex_);
    if (const int status = all.enter(name)) return status;
    return f(all);
  }
  /// The same in a thread with a device.
  template <class F>
  static int call_with_device(const char* name, F&& f) {
    return call(name, [&](fake_ascend& all) {
      const int status = all.state_of_thread(name);
      return status != npu_status::success ? status : f(all);
    });
  }
  /// f(fake) even if the call fails: it releases something.
  template <class F>
  static int call_always(const char* name, F&& f) {
    fake_ascend& all = *self();
    const std::lock_guard lock(all.mutex_);
    const int status = all.enter(name), done = f(all);
    return status != npu_status::success ? status : done;
  }
  /// f(fake, queue) for a stream.
  template <class F>
  static int call_on(void* stream, const char* name, F&& f) {
    return call_with_device(name, [&](fake_ascend& all) {
      const auto q = all.queue_of(stream, name);
      return q ? f(all, q) : npu_status::wrong_context;
    });
  }

  [[nodiscard]] static npu_runtime make_table(const fake_ascend_config& settings) {
    npu_runtime t;
    t.version = settings.version;
    t.served_by = "fake_ascend";
    t.init = [](const char*) {
      fake_ascend& all = *self();
      const std::lock_guard lock(all.mutex_);
      ++all.counts_["aclInit"];
      if (++all.calls_ == all.failing_call_) return all.call_status_;
      if (all.settings_.init_status != npu_status::success) return all.settings_.init_status;
      if (std::exchange(all.is_initialized_, true)) return npu_status::repeated_initialization;
      return npu_status::success;
    };
    t.device_count = [](std::uint32_t* count) {
      return call("aclrtGetDeviceCount", [&](fake_ascend& all) { 
        *count = static_cast<std::uint32_t>(all.settings_.devices);
        return all.settings_.count_status;
      });
    };
    t.set_device = [](std::int32_t device) {
      return call("aclrtSetDevice", [&](fake_ascend& all) {
        if (device < 0 || device >= all.settings_.devices) return all.violation(npu_status::invalid_device, concat("aclrtSetDevice(", device, ")"));
        current() = device;
        return npu_status::success;
      });
    };
    t.soc_name = [] { return self()->settings_.soc.c_str(); };
    t.set_saturation = [](std::int32_t mode) {
      return call_with_device("aclrtSetDeviceSatMode", [&](fake_ascend& all) {
        if (mode != 0 && mode != 1) return all.violation(npu_status::invalid_parameter, concat("aclrtSetDeviceSatMode(", mode, ")"));
        if (mode == 1 && xtrain::detail::generation_of(all.settings_.soc) == npu_generation::first)
          return all.violation(npu_status::not_supported, "aclrtSetDeviceSatMode: the first generation saturates");
        const auto here = current();
        if (std::any_of(all.queues_.begin(), all.queues_.end(), [&](const auto& one) { return one.second->device == here; }))
          return all.violation(npu_status::runtime_parameter, "aclrtSetDeviceSatMode after a stream was created");
        all.saturation_[here] = mode;
        return npu_status::success;
      });
    };
    t.get_saturation = [](std::int32_t* mode) {
      return call_with_device("aclrtGetDeviceSatMode", [&](fake_ascend& all) {
        if (mode == nullptr) return all.violation(npu_status::invalid_parameter, "aclrtGetDeviceSatMode without an address");
        *mode = all.saturation_[current()];
        return npu_status::success;
      });
    };
    t.set_system_option = [](std::int32_t which, std::int64_t value) {
      return call("aclrtSetSysParamOpt", [&](fake_ascend& all) {
        if (which < 0 || which > 2) return all.violation(npu_status::invalid_parameter, concat("aclrtSetSysParamOpt(", which, ")"));
        all.options_[which] = value;
        return npu_status::success;
      });
    };
    t.memory_info = [](std::int32_t kind, std::size_t* free, std::size_t* total) {
      return call_with_device("aclrtGetMemInfo", [&](fake_ascend& all) {
        if (kind != npu_option::device_memory) return all.violation(npu_status::invalid_parameter, concat("aclrtGetMemInfo of kind ", kind));
        const device_memory& memory = *all.memories_[static_cast<std::size_t>(current())];
        *free = memory.limit - memory.used;
        *total = memory.limit;
        return npu_status::success;
      });
    };
    t.allocate = [](void** memory, std::size_t bytes, std::int32_t policy) {
      return call_with_device("aclrtMalloc", [&](fake_ascend& all) {
        if (policy < 0 || policy > 2) return all.violation(npu_status::invalid_parameter, concat("aclrtMalloc with policy ", policy));
        return all.allocate(memory, bytes);
      });
    };
    t.release = [](void* memory) { return call_always("aclrtFree", [&](fake_ascend& all) { return all.release(memory); }); };
    t.allocate_pinned = [](void** memory, std::size_t bytes) {
      return call_with_device("aclrtMallocHost", [&](fake_ascend& all) {
        if (bytes == 0) return all.violation(npu_status::invalid_parameter, "aclrtMallocHost of 0 bytes");
        *memory = ::operator new(bytes, std::align_val_t{4096});
        std::memset(*memory, fresh_byte, std::min<std::size_t>(bytes, 4096));
        all.pinned_[reinterpret_cast<std::uintptr_t>(*memory)] = bytes;
        return npu_status::success;
      });
    };
    t.release_pinned = [](void* memory) {
      return call_always("aclrtFreeHost", [&](fake_ascend& all) {
        if (all.pinned_.erase(reinterpret_cast<std::uintptr_t>(memory)) == 0)
          return all.violation(npu_status::runtime_parameter, "aclrtFreeHost of what is not pinned");
        ::operator delete(memory, std::align_val_t{4096});
        return npu_status::success;
      });
    };
    t.create_stream = [](void** stream) {
      return call_with_device("aclrtCreateStream", [&](fake_ascend& all) {
        auto fresh = std::make_shared<queue>();
        fresh->device = current();
        fresh->error = all.error_of_device(fresh->device);
        fresh->worker = std::thread([&all, fresh] { all.work_on(fresh); });
        *stream = fresh.get();
        all.queues_[*stream] = std::move(fresh);
        return npu_status::success;
      });
    };
    t.destroy_stream = [](void* stream) {
      fake_ascend& all = *self();
      std::thread worker;
      int status = 0, done = npu_status::success;
      {
        const std::lock_guard lock(all.mutex_);
        status = all.enter("aclrtDestroyStream");
        const auto q = all.queue_of(stream, "aclrtDestroyStream");
        if (!q) return status != npu_status::success ? status : npu_status::wrong_context;
        if (q->done < q->queued && q->error == 0) done = all.violation(npu_status::runtime_parameter, "aclrtDestroyStream of a stream that has work to do");
        if (q->subscriber != 0) (void)all.violation(0, "aclrtDestroyStream of a stream to which a thread is subscribed");
        q->is_closed = true;
        q->items.clear();
        q->done = q->queued;
        worker = std::move(q->worker);
        all.late_errors_.erase(q.get());
        all.queues_.erase(stream);
      }
      all.changed_.notify_all();
      worker.join();
      return status != npu_status::success ? status : done;
    };
    t.synchronize_stream = [](void* stream) {
      fake_ascend& all = *self();
      std::unique_lock lock(all.mutex_);
      if (const int status = all.enter("aclrtSynchronizeStream")) return status;
      if (const int status = all.state_of_thread("aclrtSynchronizeStream")) return status;
      const auto q = all.queue_of(stream, "aclrtSynchronizeStream");
      return q ? all.wait_for(lock, q, q->queued) : npu_status::wrong_context;
    };
    t.synchronize_stream_for = [](void* stream, std::int32_t milliseconds) {
      fake_ascend& all = *self();
      std::unique_lock lock(all.mutex_);
      if (const int status = all.enter("aclrtSynchronizeStreamWithTimeout")) return status;
      if (const int status = all.state_of_thread("aclrtSynchronizeStreamWithTimeout")) return status;
      const auto q = all.queue_of(stream, "aclrtSynchronizeStreamWithTimeout");
      return q ? all.wait_for(lock, q, q->queued, milliseconds) : npu_status::wrong_context;
    };
    t.abort_stream = [](void* stream) {
      return call_on(stream, "aclrtStreamAbort", [&](fake_ascend& all, const std::shared_ptr<queue>& q) {
        q->items.clear();
        q->done = q->queued;
        all.changed_.notify_all();
        return npu_status::success;
      });
    };
    t.set_failure_mode = [](void* stream, std::uint64_t mode) {
      return call_on(stream, "aclrtSetStreamFailureMode", [&](fake_ascend& all, const std::shared_ptr<queue>& q) {
        if (mode > 1) return all.violation(npu_status::invalid_parameter, concat("aclrtSetStreamFailureMode: mode ", mode));
        if (q->stops_on_failure) return all.violation(npu_status::runtime_parameter, "aclrtSetStreamFailureMode twice for one stream");
        q->stops_on_failure = mode == 1;
        return npu_status::success;
      });
    };
    t.create_event = [](void** handle, std::uint32_t flag) {
      return call_with_device("aclrtCreateEventExWithFlag", [&](fake_ascend& all) {
        if (flag != npu_option::event_for_order) return all.violation(npu_status::invalid_parameter, concat("aclrtCreateEventExWithFlag: flag ", flag));
        auto fresh = std::make_unique<event>();
        fresh->device = current();
        *handle = fresh.get();
        all.events_[*handle] = std::move(fresh);
        return npu_status::success;
      });
    };
    t.destroy_event = [](void* handle) {
      return call_always("aclrtDestroyEvent", [&](fake_ascend& all) {
        return all.events_.erase(handle) == 1 ? npu_status::success : all.violation(npu_status::invalid_handle, "aclrtDestroyEvent: there is no such event");
      });
    };
    t.record_event = [](void* handle, void* stream) {
      return call_on(stream, "aclrtRecordEvent", [&](fake_ascend& all, const std::shared_ptr<queue>& q) {
        event* const e = all.event_of(handle, "aclrtRecordEvent");
        if (e == nullptr) return npu_status::invalid_handle;
        if (e->device != q->device)
          return all.violation(npu_status::wrong_context, "aclrtRecordEvent: the event and the stream are of different devices");
        e->of = q;
        e->number = q->queued;
        return npu_status::success;
      });
    };
    t.wait_event = [](void* stream, void* handle) {
      return call_on(stream, "aclrtStreamWaitEvent", [&](fake_ascend& all, const std::shared_ptr<queue>& q) {
        const event* const e = all.event_of(handle, "aclrtStreamWaitEvent");
        if (e == nullptr) return npu_status::invalid_handle;
        if (!e->of) return all.violation(npu_status::runtime_parameter, "aclrtStreamWaitEvent for an event that was not recorded");
        return all.add(*q, {.after = e->of, .number = e->number});
      });
    };
    t.synchronize_event = [](void* handle) {
      fake_ascend& all = *self();
      std::unique_lock lock(all.mutex_);
      if (const int status = all.enter("aclrtSynchronizeEvent")) return status;
      if (const int status = all.state_of_thread("aclrtSynchronizeEvent")) return status;
      const event* const e = all.event_of(handle, "aclrtSynchronizeEvent");
      if (e == nullptr) return npu_status::invalid_handle;
      if (!e->of) return all.violation(npu_status::runtime_parameter, "aclrtSynchronizeEvent of an event that was not recorded");
      return all.wait_for(lock, std::shared_ptr<queue>(e->of), std::size_t{e->number});
    };
    t.synchronize_event_for = [](void* handle, std::int32_t milliseconds) {
      fake_ascend& all = *self();
      std::unique_lock lock(all.mutex_);
      if (const int status = all.enter("aclrtSynchronizeEventWithTimeout")) return status;
      if (const int status = all.state_of_thread("aclrtSynchronizeEventWithTimeout")) return status;
      const event* const e = all.event_of(handle, "aclrtSynchronizeEventWithTimeout");
      if (e == nullptr) return npu_status::invalid_handle;
      if (!e->of) return all.violation(npu_status::runtime_parameter, "aclrtSynchronizeEventWithTimeout of an event that was not recorded");
      const int status = all.wait_for(lock, std::shared_ptr<queue>(e->of), std::size_t{e->number}, milliseconds);
      return status == npu_status::stream_timeout ? npu_status::event_timeout : status;
    };
    t.query_event = [](void* handle, std::int32_t* is_reached) {  // does not count: a thread that watches asks at any time
      fake_ascend& all = *self();
      const std::lock_guard lock(all.mutex_);
      if (all.is_lost(current())) return all.lost_;
      const event* const e = all.event_of(handle, "aclrtQueryEventStatus");
      if (e == nullptr) return npu_status::invalid_handle;
      if (!e->of) return all.violation(npu_status::runtime_parameter, "aclrtQueryEventStatus of an event that was not recorded");
      all.demand(*e->of, e->number);  // a device does not wait to be asked
      *is_reached = e->of->done >= e->number ? 1 : 0;
      return e->of->error;
    };
    t.copy = [](void* to, std::size_t capacity, const void* from, std::size_t bytes, std::int32_t kind, void* stream) {
      fake_ascend& all = *self();
      std::unique_lock lock(all.mutex_);
      return all.copy(lock, to, capacity, from, bytes, kind, stream);
    };
    t.fill = [](void* to, std::size_t capacity, std::int32_t value, std::size_t bytes, void* stream) {
      return call_on(stream, "aclrtMemsetAsync", [&](fake_ascend& all, const std::shared_ptr<queue>& q) {
        if (bytes == 0 || capacity < bytes)
          return all.violation(npu_status::runtime_parameter, concat("aclrtMemsetAsync of ", bytes, " bytes to ", capacity));
        if (const std::string wrong = all.problem_of(to, bytes, q->device, "a write"); !wrong.empty())
          return all.violation(npu_status::runtime_parameter, concat("aclrtMemsetAsync: ", wrong));
        return all.add(*q, {.run =
                                [&all, to, bytes, value] {
                                  if (const std::string later = all.problem_with(to, bytes, "a write"); !later.empty())
                                    return all.violation(npu_status::ai_core_exception, concat("a queued fill: ", later));
                                  std::memset(to, value, bytes);
                                  return npu_status::success;
                                },
                            .writes = to});
      });
    };
    if (settings.has_callbacks) {
      t.subscribe_thread = [](std::uint64_t thread, void* stream) {
        return call_on(stream, "aclrtSubscribeReport", [&](fake_ascend& all, const std::shared_ptr<queue>& q) {
          if (q->subscriber != 0) return all.violation(npu_status::runtime_parameter, "aclrtSubscribeReport of a second thread for one stream");
          if (const auto known = all.subscriptions_.find(thread); known != all.subscriptions_.end() && known->second != q->device)
            return all.violation(npu_status::runtime_parameter, "aclrtSubscribeReport of one thread for two devices");
          q->subscriber = thread;
          all.subscriptions_[thread] = q->device;
          return npu_status::success;
        });
      };
      t.unsubscribe_thread = [](std::uint64_t thread, void* stream) {
        return call_always("aclrtUnSubscribeReport", [&](fake_ascend& all) {
          const auto q = all.queue_of(stream, "aclrtUnSubscribeReport");
          if (!q || q->subscriber != thread) return all.violation(npu_status::runtime_parameter, "aclrtUnSubscribeReport of a thread that is not subscribed");
          if (q->error == 0 && std::any_of(q->items.begin(), q->items.end(), [](const work& one) { return one.function != nullptr; }))
            (void)all.violation(0, "aclrtUnSubscribeReport before the functions of the stream have run");
          q->subscriber = 0;
          all.subscriptions_.erase(thread);
          return npu_status::success;
        });
      };
      t.queue_callback = [](void (*function)(void*), void* argument, std::int32_t blocks, void* stream) {
        return call_on(stream, "aclrtLaunchCallback", [&](fake_ascend& all, const std::shared_ptr<queue>& q) {
          if (q->subscriber == 0) return all.violation(npu_status::callback_not_registered, "aclrtLaunchCallback without a subscribed thread");
          if (function == nullptr || (blocks != 0 && blocks != 1)) return all.violation(npu_status::runtime_parameter, "aclrtLaunchCallback");
          return all.add(*q, {.function = std::make_shared<callback>(callback{.function = function, .argument = argument, .blocks = blocks == 1})});
        });
      };
      t.run_callbacks = [](std::int32_t milliseconds) {  // does not count: its thread calls it at any time
        fake_ascend& all = *self();
        std::unique_lock lock(all.mutex_);
        if (milliseconds == 0 || milliseconds < -1) return all.violation(npu_status::runtime_parameter, "aclrtProcessReport that waits for no time");
        const std::uint64_t me = this_thread();
        if (!all.subscriptions_.contains(me)) return npu_status::thread_not_subscribed;
        std::shared_ptr<callback> next;
        const auto find = [&] {
          for (const auto& [handle, q] : all.queues_) {
            if (q->subscriber != me || q->items.empty()) continue;
            const auto& first = q->items.front().function;
            if (first && first->is_offered && !first->is_done && q->error == 0) return next = first, true;
          }
          return false;
        };
        if (!all.changed_.wait_for(lock, std::chrono::milliseconds(milliseconds < 0 ? 60000 : milliseconds), find)) return npu_status::report_timeout;
        lock.unlock();
        is_in_callback() = true;
        next->function(next->argument);
        is_in_callback() = false;
        lock.lock();
        next->is_done = true;
        all.changed_.notify_all();
        return npu_status::success;
      };
    }
    t.recent_message = []() -> const char* {
      static thread_local std::string last;
      last = std::exchange(message(), {});
      return last.empty() ? nullptr : last.c_str();
    };
    return t;
  }

  fake_ascend_config settings_;
  npu_runtime table_;
  mutable std::mutex mutex_{};
  std::condition_variable changed_{};
  std::vector<std::unique_ptr<device_memory>> memories_{};
  std::map<std::uintptr_t, std::size_t> pinned_{};
  std::map<void*, std::shared_ptr<queue>> queues_{};
  std::map<void*, std::unique_ptr<event>> events_{};
  std::map<std::uint64_t, int> subscriptions_{};  // thread, device
  std::map<const queue*, int> late_errors_{};
  std::map<int, int> errors_{}, saturation_{};
  std::map<std::int32_t, std::int64_t> options_{};
  std::map<std::string, std::size_t> counts_{};
  std::string violations_{};
  bool is_initialized_ = false, is_ending_ = false, loses_device_ = false;
  std::size_t calls_ = 0, failing_call_ = 0, works_ = 0, failing_work_ = 0, host_waits_ = 0;
  int call_status_ = 0, work_status_ = 0, lost_ = 0, lost_device_ = -1, open_walls_ = 0;
};

}  // namespace xtrain::testing
