// cuDNN's attention: fills the table of device/cuda/cudnn/library.hpp. The only source that includes cudnn-frontend; compiled by xtrain_add_cuda_kernels(CUDNN)
// with any C++ compiler. It links no library: libcudnn.so.9 is loaded for the first attention, the driver by cudnn-frontend.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // another library of the program may have another version of it
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <xtrain/device/cuda/cudnn/library.hpp>

namespace cudnn_frontend {

void* cudnn_dlhandle = nullptr;  // declared there

}  // namespace cudnn_frontend

namespace {

namespace frontend = cudnn_frontend;
using xtrain::concat;

constexpr std::size_t least_version = 90000;

struct device {
  cudnnHandle_t cudnn = nullptr;  // null: only plans
  std::shared_ptr<frontend::DeviceProperties> properties{};  // of a saved device
  int architecture = 0;  // 10 · major + minor
};

/// Numbers of tensors.
enum operand : std::int64_t { q = 1, k, v, o, lse, d_o, dq, dk, dv };

struct proposals {
  device* on = nullptr;
  frontend::graph::Graph graph{};
};

/// f(), without exceptions.
template <class F>
std::string guarded(F&& f) {
  try {
    return f();
  } catch (const std::exception& problem) {
    return problem.what();
  }
}
std::string text_of(const frontend::error_t& status) { return status.is_good() ? std::string() : status.err_msg; }
std::string text_of(const char* call, cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? std::string() : concat(call, ": ", frontend::detail::get_error_string(status));
}
std::string version_text(std::size_t major, std::size_t minor, std::size_t patch) { return concat(major, ".", minor, ".", patch); }

/// A later line may have the cause, such as a missing driver.
std::string on_one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text.replace(at, 1, "; ");
  return text;
}

std::string load() {
  static const std::string why_not = [] {
    frontend::cudnn_dlhandle = ::dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (frontend::cudnn_dlhandle == nullptr) {
      const char* const why = ::dlerror();
      return concat("cuDNN must be installed where the loader finds it (NVIDIA's package libcudnn9-cuda-13); libcudnn.so.9 cannot be loaded: ",
                    why == nullptr ? "no reason given" : why);
    }
    return guarded([] {
      const std::size_t found = frontend::detail::get_backend_version();
      return found >= least_version ? std::string()
                                    : concat("cuDNN must be ", version_text(least_version / 10000, least_version / 100 % 100, least_version % 100),
                                             " or later; it is ", version_text(found / 10000, found / 100 % 100, found % 100));
    });
  }();
  return why_not;
}

/// The number behind "deviceVer" in a device's properties is 100 · major + 10 · minor.
int architecture_in(const std::string& json) {
  const std::size_t at = json.find("\"deviceVer\":");
  return at == std::string::npos ? 0 : std::atoi(json.c_str() + at + 12) / 10;
}

std::string open(void*& handle, int architecture) {
  if (std::string why = load(); !why.empty()) return why;
  return guarded([&]() -> std::string {
    auto made = std::make_unique<device>();
    made->architecture = architecture;
    if (std::string why = text_of("cudnnCreate", frontend::detail::create_handle(&made->cudnn)); !why.empty()) return why;
    handle = made.release();
    return {};
  });
}
std::string open_saved(void*& handle, const std::string& properties) {
  if (std::string why = load(); !why.empty()) return why;
  return guarded([&]() -> std::string {
    auto made = std::make_unique<device>();
    made->properties = std::make_shared<frontend::DeviceProperties>();
    if (std::string why = text_of(made->properties->deserialize(std::vector<std::uint8_t>(properties.begin(), properties.end()))); !why.empty()) return why;
    made->architecture = architecture_in(properties);
    handle = made.release();
    return {};
  });
}
std::string properties(void* handle, std::string& json) {
  return guarded([&]() -> std::string {
    frontend::DeviceProperties all;
    std::string why = text_of(all.set_handle(static_cast<device*>(handle)->cudnn).build());
    std::vector<std::uint8_t> bytes;
    if (why.empty()) why = text_of(all.serialize(bytes));
    json.assign(bytes.begin(), bytes.end());
    return why;
  });
}
void close(void* handle) {
  const std::unique_ptr<device> last(static_cast<device*>(handle));
  if (last->cudnn != nullptr) (void)guarded([&] { return text_of("cudnnDestroy", frontend::detail::destroy_handle(last->cudnn)); });
}

/// Queries, keys and values are parts of the rows of one matrix.
void describe(frontend::graph::Graph& graph, const xtrain::cuda_attention_shape& shape) {
  const auto number = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  const std::int64_t b = number(shape.b), t = number(shape.t), d = number(shape.d), row = number(shape.row()), heads = number(shape.h),
                     key_heads = number(shape.k);
  using tensor = frontend::graph::Tensor_attributes;
  const auto part = [&](const char* name, operand which, std::int64_t of, std::int64_t width) {
    return graph.tensor(tensor().set_name(name).set_uid(which).set_dim({b, of, t, d}).set_stride({t * width, d, width, 1}));
  };
  const auto write = [&](const std::shared_ptr<tensor>& result, operand which, std::int64_t of, std::int64_t width) {
    result->set_output(true).set_uid(which).set_dim({b, of, t, d}).set_stride({t * width, d, width, 1});
  };
  const auto queries = part("q", q, heads, row), keys = part("k", k, key_heads, row), values = part("v", v, key_heads, row);
  const std::vector<std::int64_t> lse_size{b, heads, t, 1}, lse_stride{heads * t, t, 1, 1};
  const auto scale = static_cast<float>(shape.scale);
  if (!shape.is_backward) {
    auto [out, stats] = graph.sdpa(queries, keys, values,
                                   frontend::graph::SDPA_attributes()
                                       .set_name("attention")
                                       .set_generate_stats(true)
                                       .set_attn_scale(scale)
                                       .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
                                       .set_diagonal_band_right_bound(0));
    write(out, o, heads, heads * d);
    stats->set_output(true).set_uid(lse).set_data_type(frontend::DataType_t::FLOAT).set_dim(lse_size).set_stride(lse_stride);
    return;
  }
  const auto out = part("o", o, heads, heads * d), d_out = part("do", d_o, heads, heads * d);
  const auto stats =
      graph.tensor(tensor().set_name("lse").set_uid(lse).set_dim(lse_size).set_stride(lse_stride).set_data_type(frontend::DataType_t::FLOAT));
  auto [d_queries, d_keys, d_values] = graph.sdpa_backward(queries, keys, values, out, d_out, stats,
                                                           frontend::graph::SDPA_backward_attributes()
                                                               .set_name("attention_backward")
                                                               .set_attn_scale(scale)
                                                               .set_diagonal_alignment(frontend::DiagonalAlignment_t::TOP_LEFT)
                                                               .set_diagonal_band_right_bound(0)
                                                               .set_deterministic_algorithm(true));
  write(d_queries, dq, heads, row);
  write(d_keys, dk, key_heads, row);
  write(d_values, dv, key_heads, row);
}

std::string propose(void* handle, const xtrain::cuda_attention_shape& shape, void*& result, std::size_t& count) {
  return guarded([&]() -> std::string {
    auto made = std::make_unique<proposals>();
    made->on = static_cast<device*>(handle);
    frontend::graph::Graph& graph = made->graph;
    // without its version, the frontend asks the thread's current device
    graph.set_sm_version(made->on->architecture)
        .set_io_data_type(shape.number == xtrain::cuda_number::bf16 ? frontend::DataType_t::BFLOAT16 : frontend::DataType_t::HALF)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    if (made->on->properties) graph.set_device_properties(made->on->properties);
    describe(graph, shape);
    std::string why = text_of(graph.validate());
    if (why.empty()) why = text_of(made->on->properties ? graph.build_operation_graph() : graph.build_operation_graph(made->on->cudnn));
    if (why.empty()) why = text_of(graph.create_execution_plans({frontend::HeurMode_t::A}));
    if (why.empty()) why = text_of(graph.check_support());
    if (!why.empty()) return on_one_line(std::move(why));
    count = static_cast<std::size_t>(graph.get_execution_plan_count());
    result = made.release();
    return {};
  });
}
void release(void* what) { delete static_cast<proposals*>(what); }

std::string build(void* of, std::size_t index, xtrain::cudnn_plan& plan) {
  return guarded([&]() -> std::string {
    frontend::graph::Graph& graph = static_cast<proposals*>(of)->graph;
    const auto number = static_cast<std::int64_t>(index);
    std::int64_t bytes = 0;
    std::string why = text_of(graph.build_plan_at_index(number));
    if (why.empty()) why = text_of(graph.get_plan_name_at_index(number, plan.name));
    if (why.empty()) why = text_of(graph.get_workspace_size_plan_at_index(number, bytes));
    plan.workspace_bytes = static_cast<std::size_t>(bytes);
    return on_one_line(std::move(why));
  });
}

std::string run(void* of, std::size_t index, const xtrain::cuda_attention& what, void* workspace, xtrain::cuda_queue_handle stream) {
  return guarded([&]() -> std::string {
    const proposals& all = *static_cast<proposals*>(of);
    if (all.on->cudnn == nullptr) return "the device is a saved one";
    if (std::string why = text_of("cudnnSetStream", frontend::detail::set_stream(all.on->cudnn, stream)); !why.empty()) return why;
    const xtrain::cuda_attention_shape& shape = what.shape;
    const auto part = [&](const void* begin, std::size_t heads_before) {  // of 16-bit numbers
      return static_cast<void*>(static_cast<std::uint16_t*>(const_cast<void*>(begin)) + heads_before * shape.d);
    };
    std::unordered_map<std::int64_t, void*> operands{
        {q, part(what.qkv, 0)}, {k, part(what.qkv, shape.h)}, {v, part(what.qkv, shape.h + shape.k)}, {o, what.o}, {lse, what.lse}};
    if (shape.is_backward) {
      operands.emplace(d_o, part(what.d_o, 0));
      operands.emplace(dq, part(what.dqkv, 0));
      operands.emplace(dk, part(what.dqkv, shape.h));
      operands.emplace(dv, part(what.dqkv, shape.h + shape.k));
    }
    return text_of(all.graph.execute_plan_at_index(all.on->cudnn, operands, workspace, static_cast<std::int64_t>(index)));
  });
}

std::string version() {
  const std::size_t found = frontend::detail::get_backend_version();
  return concat("cuDNN ", version_text(found / 10000, found / 100 % 100, found % 100), " by cudnn-frontend ",
                version_text(CUDNN_FRONTEND_MAJOR_VERSION, CUDNN_FRONTEND_MINOR_VERSION, CUDNN_FRONTEND_PATCH_VERSION));
}

}  // namespace

extern "C" const xtrain::cudnn_library* xtrain_cudnn_library() {
  static const xtrain::cudnn_library all{.version = version,
                                         .open = open,
                                         .open_saved = open_saved,
                                         .properties = properties,
                                         .close = close,
                                         .propose = propose,
                                         .release = release,
                                         .build = build,
                                         .run = run};
  return &all;
}
