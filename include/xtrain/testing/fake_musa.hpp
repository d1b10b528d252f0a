// libmusart without a GPU: MUSA's entries, with the arguments that device/musa/runtime.hpp declares, over the fake CUDA runtime.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/device/musa/musa.hpp>
#include <xtrain/testing/fake_cuda.hpp>

namespace xtrain::testing {

/// Default: S5000. {.architecture = 21, .warp_width = 128} is an S80, {.architecture = 22, .warp_width = 128} an S4000.
struct fake_musa_config {
  int devices = 1;
  std::size_t memory = std::size_t{256} << 20;
  int driver = 40300;  ///< 0: absent
  int status = cuda_status::success;
  int probe = cuda_status::success;
  int architecture = 31, warp_width = 32;
  std::vector<std::string> missing{};  ///< entries that the library lacks
  int graph_status = cuda_status::success;  ///< of musaGraphInstantiate: entries of graphs may fail
  std::uint64_t seed = 1;
};

/// As fake_cuda; calls_of(), violations() and errors have MUSA's names. The table is found by name, as in the library.
class fake_musa : public fake_cuda {
 public:
  explicit fake_musa(const fake_musa_config& settings = {})
      : fake_cuda({.devices = settings.devices,
                   .memory = settings.memory,
                   .driver = settings.driver,
                   .status = settings.status,
                   .probe = settings.probe,
                   .has_wait_value = false,
                   .vendor = &moore_threads,
                   .architecture = settings.architecture,
                   .warp_width = settings.warp_width,
                   .seed = settings.seed}) {
    self() = this;
    graph_status_ = settings.graph_status;
    static constexpr musa_kernel_library kernels{.architectures = "31", .warp_width = simt::warp_width, .probed = &probed};
    table_ = xtrain::detail::make_musa_runtime(
        [&](std::string_view name) {
          return std::find(settings.missing.begin(), settings.missing.end(), name) == settings.missing.end() ? entry_of(name) : nullptr;
        },
        &kernels);
    xtrain::detail::the_musa_loaded().file = "a fake";
  }
  ~fake_musa() { self() = nullptr; }

  [[nodiscard]] const cuda_runtime& runtime() const { return table_; }
  [[nodiscard]] musa_context open(int device = 0, std::size_t memory_limit = 0) const {
    return musa_context(musa_config{.device = device, .memory_limit = memory_limit, .runtime = &table_});
  }

 private:
  static fake_musa*& self() {
    static fake_musa* one = nullptr;
    return one;
  }
  [[nodiscard]] static const cuda_runtime& under() { return self()->fake_cuda::runtime(); }
  static constexpr char probed = 0;  // its address
  static constexpr int wrong_argument = cuda_status::invalid_value;

  template <class F>
  [[nodiscard]] static void* address(F* function) {
    return reinterpret_cast<void*>(function);
  }
  [[nodiscard]] static void* entry_of(std::string_view name) {
    using stream = cuda_queue_handle;
    using bytes = std::size_t;
    using dimensions = xtrain::detail::musa_dimensions;
    if (name == "musaGetDeviceCount") return address(+[](int* count) { return under().device_count(count); });
    if (name == "musaSetDevice") return address(+[](int device) { return under().set_device(device); });
    if (name == "musaGetDeviceProperties") return address(+[](void* to, int device) { return under().device_name(static_cast<char*>(to), 256, device); });
    if (name == "musaDeviceGetAttribute") return address(+[](int* to, int which, int device) { return under().device_attribute(to, which, device); });
    if (name == "musaMemGetInfo") return address(+[](bytes* free, bytes* total) { return under().memory_info(free, total); });
    if (name == "musaMalloc") return address(+[](void** to, bytes n) { return under().allocate(to, n); });
    if (name == "musaFree") return address(+[](void* memory) { return under().release(memory); });
    if (name == "musaHostAlloc")
      return address(+[](void** to, bytes n, unsigned flags) { return flags == 3 ? under().allocate_pinned(to, n) : wrong_argument; });
    if (name == "musaFreeHost") return address(+[](void* memory) { return under().release_pinned(memory); });
    if (name == "musaHostGetDevicePointer")
      return address(+[](void** to, void* pinned, unsigned flags) { return flags == 0 ? under().device_address(to, pinned) : wrong_argument; });
    if (name == "musaStreamCreateWithFlags")
      return address(+[](stream* to, unsigned flags) { return flags == 1 ? under().create_stream(to) : wrong_argument; });
    if (name == "musaStreamDestroy") return address(+[](stream s) { return under().destroy_stream(s); });
    if (name == "musaStreamSynchronize") return address(+[](stream s) { return under().synchronize_stream(s); });
    if (name == "musaStreamWaitEvent")
      return address(+[](stream s, void* event, unsigned flags) { return flags == 0 ? under().wait_event(s, event) : wrong_argument; });
    if (name == "musaEventCreate") return address(+[](void** to) { return under().create_timed_event(to); });
    if (name == "musaEventCreateWithFlags")
      return address(+[](void** to, unsigned flags) { return flags == 2 ? under().create_event(to) : wrong_argument; });
    if (name == "musaEventDestroy") return address(+[](void* event) { return under().destroy_event(event); });
    if (name == "musaEventRecord") return address(+[](void* event, stream s) { return under().record_event(event, s); });
    if (name == "musaEventSynchronize") return address(+[](void* event) { return under().synchronize_event(event); });
    if (name == "musaEventQuery") return address(+[](void* event) { return under().query_event(event); });
    if (name == "musaEventElapsedTime") return address(+[](float* to, void* begin, void* end) { return under().elapsed(to, begin, end); });
    if (name == "musaMemcpyAsync")
      return address(+[](void* to, const void* from, bytes n, int kind, stream s) { return kind == 4 ? under().copy(to, from, n, s) : wrong_argument; });
    if (name == "musaMemsetAsync")
      return address(+[](void* to, int value, bytes n, stream s) { return value == 0 ? under().fill_zero(to, n, s) : wrong_argument; });
    if (name == "musaLaunchKernel")
      return address(+[](const void* entry, dimensions grid, dimensions block, void** arguments, bytes shared, stream s) {
        if (block.y != 1 || block.z != 1) return wrong_argument;
        return under().launch({.kernel = "a kernel",
                               .entry = entry,
                               .grid = {static_cast<int>(grid.x), static_cast<int>(grid.y), static_cast<int>(grid.z)},
                               .threads = static_cast<int>(block.x),
                               .shared_bytes = shared,
                               .argument = arguments[0],
                               .argument_bytes = static_cast<const cuda_host_entry*>(entry)->argument_bytes},
                              s);
      });
    if (name == "musaFuncGetAttributes")
      return address(+[](void*, const void* entry) {
        const cuda_launch what{.kernel = "", .entry = entry, .grid = {}, .threads = 0, .shared_bytes = 0, .argument = nullptr, .argument_bytes = 0};
        return entry == &probed ? under().probe_kernels() : under().load_kernel(what);
      });
    if (name == "musaGetLastError") return address(+[] { return under().last_error(); });
    if (name == "musaGetErrorName") return address(+[](int status) { return under().error_name(status); });
    if (name == "musaGetErrorString") return address(+[](int status) { return under().error_text(status); });
    if (name == "musaDriverGetVersion") return address(+[](int* to) { return under().driver_version(to); });
    if (name == "musaRuntimeGetVersion") return address(+[](int* to) { return *to = 40300, cuda_status::success; });
    if (name == "musaStreamBeginCapture")
      return address(+[](stream s, int mode) { return mode == 1 ? under().begin_capture(s) : wrong_argument; });
    if (name == "musaStreamEndCapture") return address(+[](stream s, void** to) { return under().end_capture(s, to); });
    if (name == "musaGraphInstantiateWithFlags")
      return address(+[](void** to, void* graph, unsigned long long flags) { return flags == 0 ? instantiate(to, graph) : wrong_argument; });
    if (name == "musaGraphInstantiate")  // the older entry
      return address(+[](void** to, void* graph, void** node, char* log, bytes n) {
        return node == nullptr && log == nullptr && n == 0 ? instantiate(to, graph) : wrong_argument;
      });
    if (name == "musaGraphLaunch") return address(+[](void* graph, stream s) { return under().launch_graph(graph, s); });
    if (name == "musaGraphDestroy") return address(+[](void* graph) { return under().destroy_graph(graph); });
    if (name == "musaGraphExecDestroy") return address(+[](void* graph) { return under().destroy_executable(graph); });
    return nullptr;
  }
  static int instantiate(void** to, void* graph) {
    return self()->graph_status_ == cuda_status::success ? under().instantiate(to, graph) : self()->graph_status_;
  }

  cuda_runtime table_{};
  int graph_status_ = cuda_status::success;
};

}  // namespace xtrain::testing
