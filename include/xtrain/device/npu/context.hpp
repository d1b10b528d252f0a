// An opened Ascend NPU: its memory, pinned host memory, and events to use again.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/npu/installed_operators.hpp>
#include <xtrain/device/npu/operator_settings.hpp>
#include <xtrain/device/npu/operators.hpp>
#include <xtrain/device/npu/runtime.hpp>

namespace xtrain {

struct hccl_library;   // the table of collectives: comm/hccl/library.hpp

/// Memory of an Ascend NPU.
struct npu_memory {
  static constexpr std::string_view name = "npu";
  static constexpr bool host_addressable = false;
};

/// Generation of the card: which types and operators it has.
enum class npu_generation : std::uint8_t {
  first,  ///< 910, 910A, 910B without a digit, 910ProA: fp16, no bf16, no fused attention
  a2,     ///< 910B1 to 910B4
  a3,     ///< 910C (910_93xx)
  other,
};

/// What operators and their scratch memory depend on.
struct npu_properties {
  npu_generation generation = npu_generation::a2;
  cann_version cann{};
  bool is_deterministic = true;
  npu_operator_settings operators{};
};

/// Which NPU is opened, and how.
struct npu_config {
  static constexpr int local = -1;
  int device = local;            ///< number of the NPU; local: this process's rank on its machine, as mpirun, srun or torchrun say, else 0
  std::size_t memory_limit = 0;  ///< bytes; 0: what is free on the NPU when it is opened
  bool is_deterministic = true;  ///< operators whose sums have no fixed order by default then have one, which may be slower
  bool accepts_unknown_cards = false;  ///< a card of a generation that this device was not written for is opened by the rules of A2
  npu_operator_settings operator_settings{};
  const npu_runtime* runtime = nullptr;      ///< null: CANN's
  const npu_operators* operators = nullptr;  ///< null: CANN's; with another runtime than CANN's, none
  const hccl_library* hccl = nullptr;        ///< null: CANN's
};

/// Runs of one kernel on the host instead of the NPU.
struct npu_host_runs {
  std::string_view kernel{};
  std::size_t runs = 0;
  double seconds = 0;  ///< of computing
};

namespace detail {

/// "Ascend910B3" is A2; "Ascend910B" without a digit is the first generation.
[[nodiscard]] inline npu_generation generation_of(std::string_view soc) {
  const std::size_t at = soc.find("910");
  if (at == std::string_view::npos) return npu_generation::other;
  const std::string_view rest = soc.substr(at + 3);
  if (rest.starts_with("_93") || rest.starts_with("C")) return npu_generation::a3;
  if (rest.starts_with("B")) return rest.size() > 1 && rest[1] >= '1' && rest[1] <= '9' ? npu_generation::a2 : npu_generation::first;
  return rest.empty() || rest.starts_with("A") || rest.starts_with("Pro") || rest.starts_with("PRO") ? npu_generation::first : npu_generation::other;
}
[[nodiscard]] inline std::string_view name_of(npu_generation generation) {
  switch (generation) {
    case npu_generation::first: return "first generation";
    case npu_generation::a2: return "A2";
    case npu_generation::a3: return "A3";
    default: return "unknown generation";
  }
}

/// Why no NPU can be used; empty if one can.
[[nodiscard]] inline std::string why_no_npu(const npu_runtime* given) {
  if (given == nullptr && !npu_runtime_here().why.empty()) return npu_runtime_here().why;
  const npu_runtime& runtime = given == nullptr ? npu_runtime_here().runtime : *given;
  const auto said = [&](std::string_view call, int status) {
    const char* const message = runtime.recent_message == nullptr ? nullptr : runtime.recent_message();
    return concat("npu: AscendCL must answer; ", call, " says: ", npu_status::text_of(status), " (", status, ")",
                  message == nullptr || *message == '\0' ? "" : concat(": ", message), "; CANN ", runtime.version.text(), ", ", runtime.served_by);
  };
  const int begun = runtime.init(nullptr);
  if (begun == npu_status::stub_library)
    return concat("npu: AscendCL must not be its stub library; LD_LIBRARY_PATH names a folder of stubs before CANN's lib64 (", runtime.served_by, ")");
  if (begun != npu_status::success && begun != npu_status::repeated_initialization) return said("aclInit", begun);
  std::uint32_t count = 0;
  if (const int status = runtime.device_count(&count); status != npu_status::success) return said("aclrtGetDeviceCount", status);
  if (count != 0) return {};
  const char* const visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
  return concat("npu: there must be an Ascend NPU that this process may use; there is none",
                visible == nullptr ? "" : concat("; ASCEND_RT_VISIBLE_DEVICES is '", visible, "'"));
}

/// The rank of this process on its machine, if a launcher says so.
[[nodiscard]] inline std::optional<int> npu_local_rank() {
  for (const char* const name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long rank = std::strtol(text, &end, 10);
    if (*end == '\0' && rank >= 0 && rank < 1024) return static_cast<int>(rank);
  }
  return std::nullopt;
}

/// Shared by the handles of an opened NPU and by all that is allocated on it.
class npu_state {
 public:
  explicit npu_state(const npu_config& settings) : runtime_(settings.runtime), operators_(settings.operators), hccl_(settings.hccl) {
    if (const std::string why = why_no_npu(runtime_); !why.empty()) throw config_error(why);
    if (operators_ == nullptr && runtime_ == nullptr) operators_ = &npu_operators_here();
    if (runtime_ == nullptr) runtime_ = &npu_runtime_here().runtime;
    std::uint32_t number = 0;
    require_npu(*runtime_, runtime_->device_count(&number), "aclrtGetDeviceCount", 0);
    const int count = static_cast<int>(number);
    // a launcher that gives each process an NPU of its own shows it no other
    ordinal_ = settings.device != npu_config::local ? settings.device : count == 1 ? 0 : npu_local_rank().value_or(0);
    require<config_error>(ordinal_ >= 0 && ordinal_ < count, "npu: the device must be at least 0 and below ", count,
                          ", the number of NPUs that this process may use; it is ", ordinal_,
                          settings.device == npu_config::local ? ", the process's rank on this machine" : "");
    enter();
    const char* const soc = runtime_->soc_name();
    name_ = soc == nullptr ? "unnamed" : soc;
    properties_ = {.generation = generation_of(name_), .cann = runtime_->version, .is_deterministic = settings.is_deterministic,
                   .operators = settings.operator_settings};
    require<config_error>(properties_.generation != npu_generation::other || settings.accepts_unknown_cards,
                          "npu: the card must be a 910A, 910B or 910C; it is ", name_,
                          ", for which this device was not written: types and operators may differ without an error. "
                          "npu_config::accepts_unknown_cards opens it by the rules of a 910B, to be compared by npu_probe");
    if (properties_.generation != npu_generation::first && runtime_->set_saturation != nullptr) {  // else inf becomes 65504, and nan 0, unseen
      std::int32_t now = -1;  // not said
      if (runtime_->get_saturation != nullptr) check(runtime_->get_saturation(&now), "aclrtGetDeviceSatMode");
      // to be set before the process has streams: another context, or library, may have some
      if (now != npu_option::infinity_on_overflow) check(runtime_->set_saturation(npu_option::infinity_on_overflow), "aclrtSetDeviceSatMode");
    }
    if (settings.is_deterministic && runtime_->set_system_option != nullptr)
      check(runtime_->set_system_option(npu_option::deterministic, 1), "aclrtSetSysParamOpt");
    std::size_t free = 0, total = 0;
    check(runtime_->memory_info(npu_option::device_memory, &free, &total), "aclrtGetMemInfo");
    limit_ = settings.memory_limit == 0 ? free : settings.memory_limit;
  }
  /// For a dry run.
  explicit npu_state(const npu_properties& like) : properties_(like), limit_(~std::size_t{0}), is_dry_run_(true) {}
  npu_state(const npu_state&) = delete;
  npu_state& operator=(const npu_state&) = delete;
  ~npu_state() {
    if (is_dry_run_ || runtime_ == nullptr) return;
    (void)runtime_->set_device(ordinal_);
    for (void* const event : events_) (void)runtime_->destroy_event(event);
    for (const auto& [bytes, memory] : unused_pinned_) (void)runtime_->release_pinned(memory);
  }

  [[nodiscard]] const npu_runtime& runtime() const { return *runtime_; }
  /// Null: there are none, and the host runs all kernels.
  [[nodiscard]] const npu_operators* operators() const { return operators_; }
  [[nodiscard]] const hccl_library* hccl() const { return hccl_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const npu_properties& properties() const { return properties_; }
  [[nodiscard]] std::size_t limit() const { return limit_; }
  [[nodiscard]] memory_tally& tally() { return tally_; }
  [[nodiscard]] bool is_dry_run() const { return is_dry_run_; }
  [[nodiscard]] dry_record& record() { return record_; }

  /// What this thread calls from now on concerns this NPU. Every entry begins with it: threads and NPUs may be several.
  void enter() const { check(runtime_->set_device(ordinal_), "aclrtSetDevice"); }
  void check(int status, std::string_view call, std::string_view kernel = {}) const { require_npu(*runtime_, status, call, ordinal_, kernel); }

  [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) {
    if (is_dry_run_) {
      tally_.add(role, bytes);
      const std::lock_guard lock(mutex_);
      return addresses_.next(bytes);
    }
    const auto refuse = [&](std::string_view why) {
      const memory_count now = tally_.count();
      std::string by_role;
      for (std::size_t r = 0; r < memory_roles; ++r)
        if (now.now[r] != 0)
          by_role += concat(by_role.empty() ? " (" : ", ", xtrain::name_of(static_cast<memory_role>(r)), " ", bytes_text(now.now[r]));
      fail<memory_error>("npu: ", xtrain::name_of(role), " needs ", bytes_text(bytes), "; in use are ", bytes_text(now.total_now), by_role,
                         by_role.empty() ? "" : ")", " of ", bytes_text(limit_),
                         outside_.load() == 0 ? "" : concat(", of which HCCL's communicators have ", bytes_text(outside_.load())), why);
    };
    tally_.add(role, bytes);
    if (tally_.total() + outside_.load() > limit_) {
      tally_.remove(role, bytes);
      refuse("");
    }
    void* fresh = nullptr;
    const int entered = runtime_->set_device(ordinal_);
    const int status = entered != npu_status::success ? entered : runtime_->allocate(&fresh, with_tail(bytes), npu_option::huge_pages_first);
    if (status == npu_status::success) return fresh;
    tally_.remove(role, bytes);
    if (npu_status::is_out_of_memory(status)) refuse(concat(", and device ", ordinal_, ", ", name_, ", has no such piece left"));
    check(status, entered == npu_status::success ? "aclrtMalloc" : "aclrtSetDevice");
    return fresh;
  }
  void release(void* memory, std::size_t bytes, memory_role role) {
    tally_.remove(role, bytes);
    if (is_dry_run_) return;
    (void)runtime_->set_device(ordinal_);
    (void)runtime_->release(memory);  // an error of earlier work is reported where that is waited for
  }

  /// Released memory is kept for later requests: a function of the host may release some, and must not call AscendCL.
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) {
    if (is_dry_run_) return ::operator new(bytes);
    std::size_t rounded = 4096;
    while (rounded < bytes) rounded *= 2;
    const std::lock_guard lock(mutex_);
    void* memory = nullptr;
    if (const auto unused = unused_pinned_.find(rounded); unused != unused_pinned_.end()) {
      memory = unused->second;
      unused_pinned_.erase(unused);
    } else {
      enter();
      const int status = runtime_->allocate_pinned(&memory, rounded);
      if (npu_status::is_out_of_memory(status)) fail<memory_error>("npu: the system must have ", bytes_text(rounded), " of memory to pin; it has not");
      check(status, "aclrtMallocHost");
    }
    pinned_[reinterpret_cast<std::uintptr_t>(memory)] = rounded;
    return memory;
  }
  void release_pinned(void* memory) {
    if (is_dry_run_) return ::operator delete(memory);
    const std::lock_guard lock(mutex_);
    const auto found = pinned_.find(reinterpret_cast<std::uintptr_t>(memory));
    if (found == pinned_.end()) return;
    unused_pinned_.emplace(found->second, memory);
    pinned_.erase(found);
  }

  [[nodiscard]] void* take_event() {
    {
      const std::lock_guard lock(mutex_);
      if (!events_.empty()) {
        void* const event = events_.back();
        events_.pop_back();
        return event;
      }
    }
    enter();
    void* event = nullptr;
    check(runtime_->create_event(&event, npu_option::event_for_order), "aclrtCreateEventExWithFlag");
    return event;
  }
  void return_event(void* event) noexcept {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }

  /// The runtime does not say whether an event is reached.
  [[nodiscard]] bool refuses_questions() const { return refuses_questions_.load(); }
  void note_refused_question() {
    refuses_questions_.store(true);
    if (runtime_->recent_message != nullptr) (void)runtime_->recent_message();  // not for a later error's text
  }

  /// Memory of the NPU that another library has: it is not the program's to use.
  void add_outside(std::size_t bytes) { outside_.fetch_add(bytes); }
  void remove_outside(std::size_t bytes) { outside_.fetch_sub(bytes); }
  [[nodiscard]] std::size_t outside() const { return outside_.load(); }

  void count_host_run(std::string_view kernel, double seconds) {
    const std::lock_guard lock(mutex_);
    for (npu_host_runs& known : host_runs_)
      if (known.kernel == kernel) {
        ++known.runs;
        known.seconds += seconds;
        return;
      }
    host_runs_.push_back({kernel, 1, seconds});
  }
  [[nodiscard]] std::vector<npu_host_runs> host_runs() {
    const std::lock_guard lock(mutex_);
    return host_runs_;
  }

 private:
  /// Operators may read past the end of an operand.
  [[nodiscard]] static std::size_t with_tail(std::size_t bytes) { return (bytes + 31) / 32 * 32 + 32; }

  const npu_runtime* runtime_ = nullptr;
  const npu_operators* operators_ = nullptr;
  const hccl_library* hccl_ = nullptr;
  int ordinal_ = 0;
  std::string name_{};
  npu_properties properties_{};
  std::size_t limit_ = 0;
  memory_tally tally_{};
  std::atomic<std::size_t> outside_{0};
  std::atomic<bool> refuses_questions_{false};
  bool is_dry_run_ = false;
  dry_record record_{};
  unreal_addresses addresses_{};
  std::mutex mutex_{};
  std::vector<void*> events_{};
  std::map<std::uintptr_t, std::size_t> pinned_{};
  std::multimap<std::size_t, void*> unused_pinned_{};
  std::vector<npu_host_runs> host_runs_{};
};

}  // namespace detail

/// A handle: copies share the NPU.
class npu_context {
 public:
  ///   throws  config_error with a sentence when there is no CANN, one that is too old, no NPU, or not this NPU
  explicit npu_context(const npu_config& settings) : state_(std::make_shared<detail::npu_state>(settings)) {}
  npu_context() : npu_context(npu_config{}) {}
  /// Needs no NPU.
  [[nodiscard]] static npu_context for_dry_run(const npu_properties& like) { return npu_context(std::make_shared<detail::npu_state>(like)); }
  [[nodiscard]] bool is_dry_run() const { return state_->is_dry_run(); }
  [[nodiscard]] dry_record& record() const { return state_->record(); }

  /// Aligned to 64 bytes, with 32 bytes behind it that operators may read. The contents are undefined.
  ///   throws  memory_error
  [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) const { return state_->allocate(bytes, role); }
  void release(void* memory, std::size_t bytes, memory_role role) const { state_->release(memory, bytes, role); }
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) const { return state_->allocate_pinned(bytes); }
  void release_pinned(void* memory) const { state_->release_pinned(memory); }
  [[nodiscard]] memory_count memory() const { return state_->tally().count(); }
  /// Of HCCL's communicators, in none of memory()'s roles.
  [[nodiscard]] std::size_t memory_of_communicators() const { return state_->outside(); }
  [[nodiscard]] std::size_t memory_limit() const { return state_->limit(); }
  [[nodiscard]] npu_properties properties() const { return state_->properties(); }
  [[nodiscard]] int ordinal() const { return state_->ordinal(); }
  /// "npu, Ascend910B3 (A2), device 0, CANN 9.1.0, /usr/local/Ascend/cann/lib64/libascendcl.so"
  [[nodiscard]] std::string description() const {
    const npu_properties with = properties();
    if (is_dry_run()) return concat("npu, dry run, ", detail::name_of(with.generation));
    return concat("npu, ", state_->name(), " (", detail::name_of(with.generation), "), device ", ordinal(), ", CANN ", with.cann.text(), ", ",
                  state_->runtime().served_by);
  }
  /// Which library has which operators; a line each.
  [[nodiscard]] std::string operators_text() const { return state_->operators() == nullptr ? std::string("no operators\n") : state_->operators()->text(); }
  /// Kernels that the host ran, the most expensive first.
  [[nodiscard]] std::vector<npu_host_runs> host_runs() const {
    std::vector<npu_host_runs> all = state_->host_runs();
    std::sort(all.begin(), all.end(), [](const npu_host_runs& a, const npu_host_runs& b) { return a.seconds > b.seconds; });
    return all;
  }
  /// The same as a printable text; empty if the NPU ran all.
  [[nodiscard]] std::string host_runs_text() const {
    std::string text;
    for (const npu_host_runs& one : host_runs()) text += concat("  ", one.kernel, ": ", one.runs, " runs on the host, ", fixed(1e3 * one.seconds, 1), " ms\n");
    return text.empty() ? text : concat("npu leaves kernels to the host:\n", text);
  }
  [[nodiscard]] const std::shared_ptr<detail::npu_state>& state() const { return state_; }

 private:
  explicit npu_context(std::shared_ptr<detail::npu_state> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::npu_state> state_;
};

}  // namespace xtrain
