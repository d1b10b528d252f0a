// The device `musa` on a library that stands in for MUSA's: what it says where there is no GPU, names, what a GPU or its runtime lacks, and kernels.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <xtrain/device/musa/musa.hpp>
#include <xtrain/device/musa/probe.hpp>
#include <xtrain/device/unsupported.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/fake_musa.hpp>
#include "fake_gpu_checks.hpp"

using namespace xtrain;
using testing::fake_musa;

namespace {

/// Numbers on the device, and work on them.
template <class T = float>
struct numbers {
  static constexpr std::size_t n = 40;
  explicit numbers(const musa_context& on) : x(on, n * sizeof(T), memory_role::other), host(on, n * sizeof(T)) {
    for (std::size_t i = 0; i < n; ++i) host.template as<T>()[i] = T(static_cast<float>(i));
  }
  void bring(cuda_stream& stream) { stream.copy_from_host(x.template as<T>().raw(), host.template as<T>().data(), n * sizeof(T)); }
  void fetch(cuda_stream& stream) { stream.copy_to_host(host.template as<T>().data(), x.template as<T>().raw(), n * sizeof(T)); }
  /// x += x
  void twice(cuda_stream& stream) {
    run_kernel(stream, kernel::add<cuda_memory, T>{.n = n, .x_n = x.template as<T>(), .y_n = x.template as<T>()}, {});
  }
  [[nodiscard]] float last() const { return static_cast<float>(host.template as<T>()[n - 1]); }

  buffer<musa> x;
  pinned_memory<musa> host;
};

std::string refusal(const testing::fake_musa_config& settings, int device = 0) {
  const fake_musa gpu(settings);
  const std::string text = what_is_thrown([&] { (void)gpu.open(device); });
  CHECK(gpu.leaks() == "");
  return text;
}

}  // namespace

TEST_CASE("a text with CUDA's names gets MUSA's, and only these") {
  CHECK(moore_threads.named("cudaMalloc") == "musaMalloc");
  CHECK(moore_threads.named("cuStreamWaitValue32") == "muStreamWaitValue32");
  CHECK(moore_threads.named("XTRAIN_CUDA_PRODUCTS of xtrain::cuda_kernels") == "XTRAIN_MUSA_PRODUCTS of xtrain::musa_kernels");
  CHECK(moore_threads.named("a cut; cuDNN's focus") == "a cut; muDNN's focus");
  CHECK(nvidia.named("cudaMalloc") == "cudaMalloc");
}

TEST_CASE("where no GPU can be used, a sentence says why, with MUSA's names") {
  CHECK(what_is_thrown([] { const musa::context on; }) ==
        "musa: the program must be linked with kernels that mcc compiled (xtrain_add_musa_kernels, target xtrain::musa_kernels); this program is not; see "
        "device/musa/README.md");
  CHECK(!musa::is_available());
  CHECK(refusal({.driver = 0}) ==
        "musa: Moore Threads' driver must be installed; this machine has none that can be loaded (libmusa.so); see device/musa/README.md");
  CHECK(refusal({.missing = {"musaMalloc", "musaEventQuery", "musaGraphLaunch"}}) ==
        "musa: the MUSA runtime must have the entries that are called; it lacks musaMalloc, musaEventQuery; see device/musa/README.md");
  CHECK(detail::the_musa_loaded().missing == "musaGraphLaunch");
  CHECK(refusal({.status = cuda_status::driver_mismatch}) == "musa: the driver must answer; it says: unknown error (musaErrorUnknown)");
  CHECK(refusal({.devices = 2}, 2) == "musa: the device must be at least 0 and below 2, the number of GPUs that this process may use; it is 2");
  CHECK(refusal({.probe = cuda_status::no_kernel_image}) ==
        "musa: kernels must be compiled for the GPU's architecture, mp_31 (fake GPU); they are compiled for 31; see xtrain_add_musa_kernels");
  CHECK(refusal({.warp_width = 48}) ==
        "musa: kernels must be compiled for warps that divide the GPU's, of 48 threads on mp_31 (fake GPU); they are compiled for warps of 32");
  ::setenv("MUSA_VISIBLE_DEVICES", "7", 1);
  CHECK(refusal({.status = cuda_status::no_device}) ==
        "musa: there must be a Moore Threads GPU that this process may use; there is none; MUSA_VISIBLE_DEVICES is '7'");
  ::unsetenv("MUSA_VISIBLE_DEVICES");
  const testing::fake_cuda other;
  CHECK(what_is_thrown([&] { (void)musa_context({.device = 0, .runtime = &other.runtime()}); }) == "musa: the runtime must be MUSA's; it is CUDA's");
  CHECK(what_is_thrown([&] { (void)musa_context(other.open()); }) ==
        "musa: the GPU must be one of Moore Threads; it is cuda, fake GPU, device 0, sm_90, 4 multiprocessors");
  const detail::musa_loaded before = detail::the_musa_loaded();
  CHECK(detail::load_musa_runtime(nullptr).problem.find("must be installed where the loader finds it; libmusart.so, .so.5 and .so.4 cannot be loaded") !=
        std::string_view::npos);
  detail::the_musa_loaded() = before;
}

TEST_CASE("work is done in order, and errors say MUSA's names") {
  for (const bool has_versions : {true, false}) {
    testing::fake_musa_config settings{.devices = 2, .architecture = 22, .warp_width = 128};
    if (!has_versions) settings.missing = {"musaDriverGetVersion", "musaRuntimeGetVersion", "musaFuncGetAttributes", "musaHostGetDevicePointer"};
    fake_musa gpu(settings);
    {
      const musa_context on = gpu.open(1);
      CHECK(on.description() == "musa, fake GPU, device 1, mp_22, 4 multiprocessors");
      CHECK(on.products_text() == "products are our kernels': no library of MUSA is asked for them\n");
      numbers a(on);
      cuda_stream stream(on), other(on);
      stream.prepare(kernel::add<cuda_memory, float>{.n = numbers<>::n, .x_n = a.x.as<float>(), .y_n = a.x.as<float>()});
      a.bring(stream);
      a.twice(stream);
      float seen = 0;
      other.wait(stream.record());
      a.twice(other);
      a.fetch(other);
      other.queue_host_function([&] { seen = a.last(); });
      other.synchronize();
      CHECK(seen == 4 * 39);
      CHECK(gpu.calls_of("musaLaunchKernel") == 2);
      CHECK(what_is_thrown([&] { const buffer<musa> more(on, std::size_t{1} << 30, memory_role::stash); }) ==
            "musa: stash needs 1.00 GiB; in use are 160 B (other 160 B) of 256.00 MiB");
      gpu.fail_work(1, cuda_status::illegal_address);
      CHECK(what_is_thrown([&] {
              a.twice(stream);
              stream.synchronize();
            }) == "musa: musaStreamSynchronize, after kernels of which the last was add, on device 1 failed: an illegal memory access was encountered "
                  "(musaErrorIllegalAddress)");
    }
    check_clean(gpu);
  }
}

TEST_CASE("work is captured where graphs work, with either signature of musaGraphInstantiate, and refused with the reason where they do not") {
  const std::string refused = "musa: the runtime must be able to capture and replay work, for capture_steps; ";
  const auto capture = [](const testing::fake_musa_config& settings) {
    const fake_musa gpu(settings);
    std::string said;
    {
      const musa_context on = gpu.open();
      numbers a(on);
      cuda_stream stream(on);
      a.bring(stream);
      said = what_is_thrown([&] {
        stream.begin_capture();
        a.twice(stream);
        const auto step = stream.end_capture();
        stream.replay(step);
        stream.replay(step);
      });
      CHECK((said == "nothing") == on.why_no_captures().empty());
      a.fetch(stream);
      stream.synchronize();
      CHECK(a.last() == (said == "nothing" ? 4 * 39 : 39));
    }
    check_clean(gpu);
    return said;
  };
  CHECK(capture({}) == "nothing");
  CHECK(capture({.missing = {"musaGraphInstantiateWithFlags"}}) == "nothing");
  CHECK(capture({.missing = {"musaStreamBeginCapture"}}) == refused + "the runtime lacks entries of graphs");
  CHECK(capture({.graph_status = cuda_status::invalid_value}) == refused + "musaGraphInstantiate failed: invalid argument (musaErrorInvalidValue)");
}

TEST_CASE("bf16 is refused on an S80, in a plan too; fp16 runs there, on its warps of 128 threads") {
  const std::string refused = "musa: add in bf16 needs mp_22 or newer; this GPU is mp_21 (MTT S80): use fp16_mixed or fp32";
  const auto twice = []<class T>(cuda_stream& stream, numbers<T>& a) { return what_is_thrown([&] { a.twice(stream); }); };
  const fake_musa gpu({.architecture = 21, .warp_width = 128});
  {
    const musa_context on = gpu.open();
    numbers<bf16> a(on);
    numbers<fp16> b(on);
    cuda_stream stream(on);
    CHECK(twice(stream, a) == refused);
    b.bring(stream);
    CHECK(twice(stream, b) == "nothing");
    b.fetch(stream);
    stream.synchronize();
    CHECK(b.last() == 78);
  }
  check_clean(gpu);
  const auto dry = musa_context::for_dry_run({.architecture = 21});
  numbers<bf16> a(dry);
  cuda_stream stream(dry);
  CHECK(twice(stream, a) == refused);
  const std::string text = describe_unsupported<musa>();
  CHECK(text.find("musa has limits:\n  fp64: no kernel computes in it, products included\n  bf16: refused on mp_21") != std::string::npos);
}

TEST_CASE("wherever a call fails, the error is ours and says MUSA's name, and nothing is lost") {
  const auto use = [](const fake_musa& gpu) {
    const musa_context on = gpu.open();
    numbers a(on);
    cuda_stream stream(on);
    a.bring(stream);
    stream.begin_capture();
    a.twice(stream);
    const auto step = stream.end_capture();
    stream.replay(step);
    a.fetch(stream);
    stream.record().synchronize();
  };
  std::size_t calls = 0;
  {
    fake_musa gpu;
    gpu.fail_call(0, 0);
    use(gpu);
    calls = gpu.calls();
    check_clean(gpu);
  }
  CHECK(calls > 40);
  std::size_t quiet = 0;
  for (std::size_t n = 1; n <= calls; ++n) {
    fake_musa gpu;
    gpu.fail_call(n, cuda_status::launch_failure);
    const std::string said = what_is_thrown([&] { use(gpu); });
    INFO("at ", n, ": ", said);
    CHECK((said == "nothing" || said.substr(0, 6) == "musa: "));
    CHECK(said.find("cuda") == std::string::npos);
    quiet += said == "nothing" ? 1 : 0;
    check_clean(gpu);
  }
  CHECK(quiet < 30);  // calls that release, after the result is there
}

TEST_CASE("the probe says of each assumption whether it holds") {
  const auto said = [](const testing::fake_musa_config& settings) {
    const fake_musa gpu(settings);
    const std::string text = text_of(probe_musa(gpu.runtime()));
    CHECK(gpu.leaks() == "");
    return text;
  };
  const std::string all = said({.architecture = 22, .warp_width = 128});
  INFO(all);
  CHECK(all.find("FAIL") == std::string::npos);
  CHECK(all.find("pass  status 600 is musaErrorNotReady: musaErrorNotReady\n") != std::string::npos);
  CHECK(all.find("pass  events time work") != std::string::npos);
  const std::string less = said({.missing = {"musaHostGetDevicePointer", "musaGraphLaunch"}});
  CHECK(less.find("FAIL  it has the entries that may be missing: lacks musaHostGetDevicePointer, musaGraphLaunch\n") != std::string::npos);
  CHECK(less.find("FAIL  work can be captured and replayed: the runtime lacks entries of graphs\n") != std::string::npos);
  CHECK(less.find("FAIL  the GPU addresses pinned memory as the host does: status 801\n") != std::string::npos);
  CHECK(said({.missing = {"musaMalloc"}}) ==
        "FAIL  libmusart is loaded and has the entries that must be there: the MUSA runtime must have the entries that are called; it lacks musaMalloc\n");
  CHECK(said({.warp_width = 64}).find("FAIL  attribute 10 is the width of a warp: 32 on mp_31, else 128: 64\n") != std::string::npos);
}

TEST_CASE("a plan's properties give kernels the scratch memory that cuda's give") {
  const kernel::sum<cuda_memory, float> sum{.n = 1000};
  CHECK(scratch_bytes(musa::properties(musa_context::planned_properties), sum) == scratch_bytes(cuda_properties{}, sum));
  CHECK(scratch_bytes(musa::properties{}, sum) > 0);
}

TEST_CASE("kernels agree with the reference") {
  const fake_musa gpu;
  {
    testing::conformance<musa> suite(gpu.open());
    testing::detail::check_elementwise<fp16>(suite);
    INFO(suite.text());
    CHECK(suite.passed());
  }
  check_clean(gpu);
}
