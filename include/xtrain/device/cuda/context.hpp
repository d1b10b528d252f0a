// An opened NVIDIA GPU.
#pragma once

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
#include <xtrain/device/cuda/attentions.hpp>
#include <xtrain/device/cuda/cublaslt/library.hpp>
#include <xtrain/device/cuda/cudnn/library.hpp>
#include <xtrain/device/cuda/products.hpp>
#include <xtrain/device/cuda/runtime.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// Memory of an NVIDIA GPU.
struct cuda_memory {
  static constexpr std::string_view name = "cuda";
  static constexpr bool host_addressable = false;
};

/// Results of kernels do not depend on these.
struct cuda_properties {
  int architecture = 90;  ///< compute capability, 10 · major + minor
  int multiprocessors = 132;
  std::size_t product_workspace = 0;  ///< scratch bytes of a library's products; 0: our kernels
  std::size_t attention_workspace = 0;  ///< maximum scratch bytes of cuDNN's attention; 0: our kernels
};

namespace detail {
class cuda_state;
}

/// Another library than cuBLASLt for products, as another vendor has.
struct cuda_other_products {
  /// library: the table below. folder: of choices among timed products
  std::unique_ptr<cuda_products> (*make)(detail::cuda_state& state, const void* library, const std::string& folder) = nullptr;
  const void* library = nullptr;
  std::string why{};  ///< why there is no such library
};

/// Which GPU is opened, and how.
struct cuda_config {
  static constexpr int local = -1;
  int device = local;                     ///< number of the GPU; local: this process's rank on its machine (mpirun, srun, torchrun), else 0
  std::size_t memory_limit = 0;           ///< bytes; 0: free memory when the GPU is opened
  const cuda_runtime* runtime = nullptr;  ///< null: the toolkit's
  cuda_product_choice products = cuda_product_choice::timed;
  const cublaslt_library* cublaslt = nullptr;  ///< null: the library of the toolkit runtime's version, if installed
  std::string product_cache{};                 ///< folder of choices among timed products and attention; empty: the user's cache
  std::size_t product_workspace = std::size_t{32} << 20;  ///< scratch bytes for cuBLASLt, as it recommends on Hopper
  cuda_product_choice attention = cuda_product_choice::timed;
  const cudnn_library* cudnn = nullptr;                        ///< null: with the toolkit's runtime, this program's, if linked with xtrain::cudnn
  std::size_t attention_workspace = std::size_t{256} << 20;    ///< scratch bytes for cuDNN; larger shapes use our kernel
  cuda_other_products other_products{};
};

namespace detail {

/// Of this program; null if absent.
[[nodiscard]] inline const cuda_runtime* cuda_runtime_here() {
#if (defined(XTRAIN_CUDA_KERNELS) || defined(__NVCC__)) && !defined(XTRAIN_MUSA_KERNELS)
  return &cuda_kernels::runtime();
#else
  return nullptr;
#endif
}

/// Why no GPU can be used; empty if usable.
///   runtime  null: the program has no runtime of this vendor
[[nodiscard]] inline std::string why_no_gpu(const cuda_runtime* runtime, const gpu_vendor& vendor) {
  const std::string name = concat(vendor.device, ": "), page = vendor.named("; see device/cuda/README.md");
  if (runtime == nullptr)
    return concat(name, "the program must be linked with kernels that ", vendor.compiler, " compiled (",
                  vendor.named("xtrain_add_cuda_kernels, target xtrain::cuda_kernels"), "); this program is not", page);
  if (!runtime->problem.empty()) return concat(name, runtime->problem, page);
  const auto version = [](int number) { return number < 0 ? std::string("an unknown version") : concat(number / 1000, ".", number % 1000 / 10); };
  int driver = 0, count = 0;
  const int known = runtime->driver_version(&driver);
  if (known != cuda_status::success || driver == 0)
    return concat(name, vendor.driver, " must be installed; this machine has none that can be loaded (", vendor.driver_library, ")", page);
  const int status = runtime->device_count(&count);
  if (status != cuda_status::success) (void)runtime->last_error();
  if (status == cuda_status::driver_too_old || status == cuda_status::stub_library)
    return concat(name, "the driver must be one for ", vendor.toolkit, " ", version(runtime->version), " or later; it is one for ", vendor.toolkit, " ",
                  version(driver), "; update the driver, or compile with an older toolkit");
  if (status == cuda_status::no_device || (status == cuda_status::success && count == 0)) {
    const std::string variable = vendor.named("CUDA_VISIBLE_DEVICES");
    const char* const visible = std::getenv(variable.c_str());
    return concat(name, "there must be ", vendor.gpu, " that this process may use; there is none",
                  visible == nullptr ? "" : concat("; ", variable, " is '", visible, "'"));
  }
  if (status != cuda_status::success)
    return concat(name, "the driver must answer; it says: ", runtime->error_text(status), " (", runtime->error_name(status), ")");
  return {};
}

/// This process's rank on its machine, if a launcher sets it.
[[nodiscard]] inline std::optional<int> local_rank() {
  for (const char* const name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    const char* const text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long rank = std::strtol(text, &end, 10);
    if (*end == '\0' && rank >= 0 && rank < 1024) return static_cast<int>(rank);
  }
  return std::nullopt;
}

/// Shared by the handles of an opened GPU and by all its allocations.
class cuda_state {
 public:
  explicit cuda_state(const cuda_config& settings) : runtime_(settings.runtime == nullptr ? cuda_runtime_here() : settings.runtime) {
    if (const std::string why = why_no_gpu(runtime_, runtime_ == nullptr ? nvidia : *runtime_->vendor); !why.empty()) throw config_error(why);
    int count = 0;
    require_cuda(*runtime_, runtime_->device_count(&count), "cudaGetDeviceCount", 0);
    // a launcher may show each process only its GPU
    ordinal_ = settings.device != cuda_config::local ? settings.device : count == 1 ? 0 : local_rank().value_or(0);
    require<config_error>(ordinal_ >= 0 && ordinal_ < count, vendor().device, ": the device must be at least 0 and below ", count,
                          ", the number of GPUs that this process may use; it is ", ordinal_,
                          settings.device == cuda_config::local ? ", the process's rank on this machine" : "");
    enter();
    properties_.architecture = 10 * attribute(cuda_attribute::architecture_major) + attribute(cuda_attribute::architecture_minor);
    properties_.multiprocessors = attribute(cuda_attribute::multiprocessors);
    char name[256] = "";
    check(runtime_->device_name(name, sizeof name, ordinal_), "cudaGetDeviceProperties");
    name_ = name;
    const int probed = runtime_->probe_kernels();
    if (probed == cuda_status::no_kernel_image || probed == cuda_status::unsupported_ptx) {
      (void)runtime_->last_error();
      fail<config_error>(vendor().device, ": kernels must be compiled for the GPU's architecture, ", architecture(), " (", name_,
                         "); they are compiled for ", runtime_->architectures, "; see ", vendor().named("xtrain_add_cuda_kernels"));
    }
    check(probed, "cudaFuncGetAttributes");
    if (!vendor().is_nvidia()) {
      const int width = attribute(cuda_attribute::warp_width);
      require<config_error>(width > 0 && width % runtime_->warp_width == 0, vendor().device, ": kernels must be compiled for warps that divide the GPU's, of ",
                            width, " threads on ", architecture(), " (", name_, "); they are compiled for warps of ", runtime_->warp_width);
      why_no_graphs_ = probe_graphs();
    }
    std::size_t free = 0, total = 0;
    check(runtime_->memory_info(&free, &total), "cudaMemGetInfo");
    limit_ = settings.memory_limit == 0 ? free : settings.memory_limit;
    find_products(settings);
    find_attentions(settings);
  }
  /// For a dry run.
  explicit cuda_state(const cuda_properties& like) : properties_(like), limit_(~std::size_t{0}), is_dry_run_(true) {}
  cuda_state(const cuda_state&) = delete;
  cuda_state& operator=(const cuda_state&) = delete;
  ~cuda_state() {
    if (is_dry_run_ || runtime_ == nullptr) return;
    (void)runtime_->set_device(ordinal_);
    products_.reset();
    attentions_.reset();
    for (void* const event : events_) (void)runtime_->destroy_event(event);
    for (const auto& [bytes, memory] : unused_pinned_) (void)runtime_->release_pinned(memory);
  }

  [[nodiscard]] const cuda_runtime& runtime() const { return *runtime_; }
  [[nodiscard]] const gpu_vendor& vendor() const { return runtime_ == nullptr ? nvidia : *runtime_->vendor; }
  [[nodiscard]] std::string architecture() const { return concat(vendor().architecture, properties_.architecture); }
  [[nodiscard]] const std::string& why_no_graphs() const { return why_no_graphs_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const cuda_properties& properties() const { return properties_; }
  [[nodiscard]] std::size_t limit() const { return limit_; }
  [[nodiscard]] memory_tally& tally() { return tally_; }
  [[nodiscard]] bool is_dry_run() const { return is_dry_run_; }
  [[nodiscard]] dry_record& record() { return record_; }

  /// Selects this GPU for the thread. Every entry begins with it: there may be several threads and GPUs.
  void enter() const { check(runtime_->set_device(ordinal_), "cudaSetDevice"); }
  void check(int status, std::string_view call, std::string_view kernel = {}) const { require_cuda(*runtime_, status, call, ordinal_, kernel); }

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
        if (now.now[r] != 0) by_role += concat(by_role.empty() ? " (" : ", ", name_of(static_cast<memory_role>(r)), " ", bytes_text(now.now[r]));
      fail<memory_error>(vendor().device, ": ", name_of(role), " needs ", bytes_text(bytes), "; in use are ", bytes_text(now.total_now), by_role,
                         by_role.empty() ? "" : ")", " of ", bytes_text(limit_), why);
    };
    tally_.add(role, bytes);
    if (tally_.total() > limit_) {
      tally_.remove(role, bytes);
      refuse("");
    }
    void* fresh = nullptr;
    const int entered = runtime_->set_device(ordinal_), status = entered == cuda_status::success ? runtime_->allocate(&fresh, bytes) : entered;
    if (status == cuda_status::success) return fresh;
    tally_.remove(role, bytes);
    if (status == cuda_status::out_of_memory) {
      (void)runtime_->last_error();
      refuse(concat(", and device ", ordinal_, ", ", name_, ", has no such piece left"));
    }
    check(status, entered == cuda_status::success ? "cudaMalloc" : "cudaSetDevice");
    return fresh;
  }
  void release(void* memory, std::size_t bytes, memory_role role) {
    tally_.remove(role, bytes);
    if (is_dry_run_) return;
    (void)runtime_->set_device(ordinal_);
    (void)runtime_->release(memory);  // errors of earlier work are reported where that is waited for
  }

  /// Released memory is reused: releasing may wait for the whole GPU, and a host function may release memory.
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
      if (status == cuda_status::out_of_memory) {
        (void)runtime_->last_error();
        fail<memory_error>(vendor().device, ": the system must have ", bytes_text(rounded), " of memory to pin; it has not");
      }
      check(status, "cudaHostAlloc");
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
  /// Pinned memory that kernels address, for a role moved to the host.
  [[nodiscard]] void* allocate_on_host(std::size_t bytes, memory_role role) {
    if (is_dry_run_) return allocate(bytes, role);
    enter();
    void *memory = nullptr, *address = nullptr;
    const int status = runtime_->allocate_pinned(&memory, bytes);
    if (status == cuda_status::out_of_memory) {
      (void)runtime_->last_error();
      fail<memory_error>(vendor().device, ": ", name_of(role), " on the host needs ", bytes_text(bytes), " of memory to pin; the system has not so much");
    }
    check(status, "cudaHostAlloc");
    const int found = runtime_->device_address(&address, memory);
    if (found != cuda_status::success || address != memory) {
      (void)runtime_->release_pinned(memory);
      check(found, "cudaHostGetDevicePointer");
      fail<config_error>(vendor().device, ": the GPU must address pinned memory as the host does, to keep ", name_of(role), " there; this one does not");
    }
    host_tally_.add(role, bytes);
    const std::lock_guard lock(mutex_);
    pinned_[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
    return memory;
  }
  void release_on_host(void* memory, std::size_t bytes, memory_role role) {
    if (is_dry_run_) return release(memory, bytes, role);
    host_tally_.remove(role, bytes);
    {
      const std::lock_guard lock(mutex_);
      pinned_.erase(reinterpret_cast<std::uintptr_t>(memory));
    }
    (void)runtime_->set_device(ordinal_);
    (void)runtime_->release_pinned(memory);
  }
  [[nodiscard]] memory_tally& host_tally() { return host_tally_; }
  [[nodiscard]] bool is_pinned(const void* host, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto first = reinterpret_cast<std::uintptr_t>(host);
    const auto after = pinned_.upper_bound(first);
    return after != pinned_.begin() && std::prev(after)->first + std::prev(after)->second >= first + bytes;
  }

  /// Products by a library; null: our kernels, for the reason why_own_products(). make(library, folder) is called once, on first use.
  template <class Make>
  [[nodiscard]] cuda_products* products(Make&& make) {
    if (!cublaslt_ && other_products_.make == nullptr) return nullptr;
    const std::lock_guard lock(products_mutex_);
    if (!products_) products_ = cublaslt_ ? make(*cublaslt_, product_cache_) : other_products_.make(*this, other_products_.library, product_cache_);
    return products_.get();
  }
  [[nodiscard]] cuda_products* products() {
    const std::lock_guard lock(products_mutex_);
    return products_.get();
  }
  [[nodiscard]] cuda_product_choice product_choice() const { return product_choice_; }
  [[nodiscard]] const std::string& why_own_products() const { return why_own_products_; }

  /// As products(), for attention.
  template <class Make>
  [[nodiscard]] cuda_attentions* attentions(Make&& make) {
    if (cudnn_ == nullptr) return nullptr;
    const std::lock_guard lock(products_mutex_);
    if (!attentions_) attentions_ = make(*cudnn_, product_cache_);
    return attentions_.get();
  }
  [[nodiscard]] cuda_attentions* attentions() {
    const std::lock_guard lock(products_mutex_);
    return attentions_.get();
  }
  [[nodiscard]] cuda_product_choice attention_choice() const { return attention_choice_; }
  [[nodiscard]] const std::string& why_own_attention() const { return why_own_attention_; }

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
    check(runtime_->create_event(&event), "cudaEventCreate");
    return event;
  }
  void return_event(void* event) noexcept {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
  }

 private:
  [[nodiscard]] int attribute(int which) const {
    int value = 0;
    check(runtime_->device_attribute(&value, which, ordinal_), "cudaDeviceGetAttribute");
    return value;
  }

  /// Captures and replays work: entries may exist without working.
  ///   returns  why not; empty if they work
  [[nodiscard]] std::string probe_graphs() const {
    const cuda_runtime& all = *runtime_;
    if (all.begin_capture == nullptr || all.end_capture == nullptr || all.instantiate == nullptr || all.launch_graph == nullptr)
      return "the runtime lacks entries of graphs";
    cuda_queue_handle stream = nullptr;
    void *memory = nullptr, *captured = nullptr, *executable = nullptr;
    const char* call = "";
    int status = cuda_status::success;
    const auto is_done = [&](const char* name, int result) { return call = name, status = result, result == cuda_status::success; };
    if (is_done("cudaMalloc", all.allocate(&memory, 256)) && is_done("cudaStreamCreateWithFlags", all.create_stream(&stream)) &&
        is_done("cudaStreamBeginCapture", all.begin_capture(stream))) {
      const bool fills = is_done("cudaMemsetAsync", all.fill_zero(memory, 256, stream));
      const int ended = all.end_capture(stream, &captured);
      if (fills && is_done("cudaStreamEndCapture", ended) && is_done("cudaGraphInstantiate", all.instantiate(&executable, captured)) &&
          is_done("cudaGraphLaunch", all.launch_graph(executable, stream)))
        (void)is_done("cudaStreamSynchronize", all.synchronize_stream(stream));
    }
    std::string why;
    if (status != cuda_status::success) {
      (void)all.last_error();
      why = concat(vendor().named(call), " failed: ", all.error_text(status), " (", all.error_name(status), ")");
    }
    if (executable != nullptr) (void)all.destroy_executable(executable);
    if (captured != nullptr) (void)all.destroy_graph(captured);
    if (stream != nullptr) (void)all.destroy_stream(stream);
    if (memory != nullptr) (void)all.release(memory);
    return why;
  }

  /// The environment variable's choice, or else a setting.
  [[nodiscard]] cuda_product_choice choice_of(const char* of_cuda, cuda_product_choice setting) const {
    const std::string variable = vendor().named(of_cuda);
    const char* const value = std::getenv(variable.c_str());
    const std::string_view asked = value == nullptr ? "" : value;
    require<config_error>(asked.empty() || asked == "timed" || asked == "proposed" || asked == "own",
                          vendor().device, ": ", variable, " must be timed, proposed or own; it is '", asked, "'");
    return asked == "own"        ? cuda_product_choice::own_kernels
           : asked == "proposed" ? cuda_product_choice::proposed
           : asked == "timed"    ? cuda_product_choice::timed
                                 : setting;
  }
  void find_products(const cuda_config& settings) {
    product_choice_ = choice_of("XTRAIN_CUDA_PRODUCTS", settings.products);
    product_cache_ = settings.product_cache;  // also for choices of attention
    if (product_choice_ == cuda_product_choice::own_kernels) {
      why_own_products_ = "our kernels were asked for";
      return;
    }
    if (settings.cublaslt != nullptr) {
      cublaslt_ = *settings.cublaslt;
    } else if (settings.other_products.make != nullptr) {
      other_products_ = settings.other_products;
    } else if (!vendor().has_other_libraries) {
      why_own_products_ = settings.other_products.why.empty() ? concat("no library of ", vendor().toolkit, " is asked for them") : settings.other_products.why;
    } else if (settings.runtime == nullptr) {
      cublaslt_found found = load_cublaslt(concat("libcublasLt.so.", runtime_->version / 1000));
      cublaslt_ = found.library;
      why_own_products_ = found.why;
    } else {
      why_own_products_ = "the runtime is not the toolkit's";
    }
    if (cublaslt_) properties_.product_workspace = settings.product_workspace;
  }
  void find_attentions(const cuda_config& settings) {
    attention_choice_ = choice_of("XTRAIN_CUDA_ATTENTION", settings.attention);
    if (attention_choice_ == cuda_product_choice::own_kernels) {
      why_own_attention_ = "our kernels were asked for";
      return;
    }
    if (settings.cudnn != nullptr) cudnn_ = settings.cudnn;
    else if (!vendor().has_other_libraries) why_own_attention_ = concat("no library of ", vendor().toolkit, " is asked for it");
    else if (settings.runtime != nullptr) why_own_attention_ = "the runtime is not the toolkit's";
    else if (xtrain_cudnn_library == nullptr) why_own_attention_ = "the program is not linked with xtrain::cudnn (xtrain_add_cuda_kernels, CUDNN)";
    else cudnn_ = xtrain_cudnn_library();
    if (cudnn_ != nullptr) properties_.attention_workspace = settings.attention_workspace;
  }

  const cuda_runtime* runtime_ = nullptr;
  std::optional<cublaslt_library> cublaslt_{};
  cuda_other_products other_products_{};
  cuda_product_choice product_choice_ = cuda_product_choice::timed;
  std::string why_own_products_{}, product_cache_{};
  std::mutex products_mutex_{};
  std::unique_ptr<cuda_products> products_{};
  const cudnn_library* cudnn_ = nullptr;
  cuda_product_choice attention_choice_ = cuda_product_choice::timed;
  std::string why_own_attention_{};
  std::unique_ptr<cuda_attentions> attentions_{};
  int ordinal_ = 0;
  std::string name_{}, why_no_graphs_{};
  cuda_properties properties_{};
  std::size_t limit_ = 0;
  memory_tally tally_{}, host_tally_{};
  bool is_dry_run_ = false;
  dry_record record_{};
  unreal_addresses addresses_{};
  std::mutex mutex_{};
  std::vector<void*> events_{};
  std::map<std::uintptr_t, std::size_t> pinned_{};
  std::multimap<std::size_t, void*> unused_pinned_{};
};

}  // namespace detail

/// A handle: copies share the GPU.
class cuda_context {
 public:
  ///   throws  config_error when there is no driver, the driver is too old, or there is no GPU, not this GPU, or no kernels for it
  explicit cuda_context(const cuda_config& settings) : state_(std::make_shared<detail::cuda_state>(settings)) {}
  cuda_context() : cuda_context(cuda_config{}) {}
  [[nodiscard]] static cuda_context for_dry_run(const cuda_properties& like) { return cuda_context(std::make_shared<detail::cuda_state>(like)); }
  [[nodiscard]] bool is_dry_run() const { return state_->is_dry_run(); }
  [[nodiscard]] dry_record& record() const { return state_->record(); }

  /// Aligned to 256 bytes. The contents are undefined.
  ///   throws  memory_error
  [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) const {
    return on_host_.has(role) ? state_->allocate_on_host(bytes, role) : state_->allocate(bytes, role);
  }
  void release(void* memory, std::size_t bytes, memory_role role) const {
    return on_host_.has(role) ? state_->release_on_host(memory, bytes, role) : state_->release(memory, bytes, role);
  }
  /// From now on, this handle and its copies allocate these roles in pinned host memory, outside the limit.
  void keep_on_host(memory_role_set roles) { on_host_ = roles; }
  [[nodiscard]] memory_count memory_on_host() const { return state_->host_tally().count(); }
  [[nodiscard]] void* allocate_pinned(std::size_t bytes) const { return state_->allocate_pinned(bytes); }
  void release_pinned(void* memory) const { state_->release_pinned(memory); }
  [[nodiscard]] memory_count memory() const { return state_->tally().count(); }
  [[nodiscard]] std::size_t memory_limit() const { return state_->limit(); }
  [[nodiscard]] cuda_properties properties() const { return state_->properties(); }
  [[nodiscard]] int ordinal() const { return state_->ordinal(); }
  [[nodiscard]] std::string description() const {
    return concat(state_->vendor().device, ", ", state_->name(), ", device ", ordinal(), ", ", state_->architecture(), ", ",
                  properties().multiprocessors, " multiprocessors");
  }
  /// Why work of this GPU cannot be captured; empty: it can.
  [[nodiscard]] const std::string& why_no_captures() const { return state_->why_no_graphs(); }
  /// What computes products or attention, and the choice for each shape, a line each.
  [[nodiscard]] std::string products_text() const {
    if (const cuda_products* const products = state_->products()) return products->text();
    const std::string& why = state_->why_own_products();
    if (!why.empty()) return concat("products are our kernels': ", why, "\n");
    return is_dry_run() ? "" : "products are not known yet: none was queued\n";
  }
  [[nodiscard]] std::string attention_text() const {
    if (const cuda_attentions* const attentions = state_->attentions()) return attentions->text();
    const std::string& why = state_->why_own_attention();
    if (!why.empty()) return concat("attention is our kernels': ", why, "\n");
    return is_dry_run() ? "" : "attention is not known yet: none was queued\n";
  }
  [[nodiscard]] const std::shared_ptr<detail::cuda_state>& state() const { return state_; }

 private:
  explicit cuda_context(std::shared_ptr<detail::cuda_state> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::cuda_state> state_;
  memory_role_set on_host_{};
};

}  // namespace xtrain
