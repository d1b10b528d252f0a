// The device `musa` on a library that stands in for MUSA's: what it says where there is no GPU, names, what a GPU or its runtime lacks, and kernels.
#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <xtrain/device/musa/musa.hpp>
#include <xtrain/device/musa/probe.hpp>
#include <xtrain/device/unsupported.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/fake_mublas.hpp>
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

// ---- muBLAS ----

namespace {

const testing::fake_musa_config s4000{.architecture = 22, .warp_width = 128};
constexpr const char* no_folder = "/dev/null/none";

/// c = a · b of small whole numbers, exact in bf16.
struct exact_product {
  static constexpr std::size_t m = 6, n = 8, k = 5;
  explicit exact_product(const musa_context& on, bool has_bias = false)
      : x(on, 64 * 2, memory_role::other), c(on, m * n * 2, memory_role::other), host(on, 64 * 2), has_bias_(has_bias) {}
  [[nodiscard]] kernel::matmul<cuda_memory, bf16> kernel() const {
    return {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .a = x.as<bf16>(), .b = x.as<bf16>(),
            .bias_n = has_bias_ ? x.as<bf16>() : span_of<const bf16, cuda_memory>(nullptr, 0), .c = c.as<bf16>()};
  }
  void bring(cuda_stream& stream) {
    for (std::size_t i = 0; i < 64; ++i) host.as<bf16>()[i] = bf16(static_cast<float>(value(i)));
    stream.copy_from_host(x.as<bf16>().raw(), host.as<bf16>().data(), 64 * 2);
    stream.synchronize();
  }
  void queue(cuda_stream& stream) { run_kernel(stream, kernel(), {}); }
  [[nodiscard]] bool is_right(cuda_stream& stream) {
    stream.copy_to_host(host.as<bf16>().data(), c.as<bf16>().raw(), m * n * 2);
    stream.synchronize();
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        int right = has_bias_ ? value(j) : 0;
        for (std::size_t l = 0; l < k; ++l) right += value(i * k + l) * value(l * n + j);
        if (static_cast<float>(host.as<bf16>()[i * n + j]) != static_cast<float>(right)) return false;
      }
    return true;
  }

  buffer<musa> x, c;
  pinned_memory<musa> host;

 private:
  [[nodiscard]] static int value(std::size_t i) { return static_cast<int>(i) % 7 - 3; }
  bool has_bias_;
};

}  // namespace

TEST_CASE("kernels agree with the reference where muBLAS computes products: layouts, transposes, strides, sums; a bias is our kernel's") {
  fake_musa gpu(s4000);
  testing::fake_mublas blas(gpu);
  {
    testing::conformance<musa> suite(blas.open(no_folder));
    testing::detail::check_products<bf16>(suite);
    testing::detail::check_products<float>(suite);
    INFO(suite.text());
    CHECK(suite.passed());
    CHECK(blas.calls_of("mublasGemmEx") > 100);
  }
  check_clean(gpu);
  check_clean(blas);
}

TEST_CASE("muBLAS multiplies where it is right and faster; otherwise, and in captures that have not prepared a product, our kernel does") {
  struct situation {
    testing::fake_mublas_config settings;
    std::string says;
    bool has_bias = false;
    testing::fake_musa_config card = s4000;
  };
  const std::string product = "muBLAS\nproduct bf16 6 x 8 x 5: ";
  const situation situations[] = {
      {{}, product + "muBLAS, 0.5 ms; our kernel 1 ms\n"},
      {{.milliseconds = 2}, product + "our kernel, 1 ms; muBLAS 2 ms\n"},
      {{.is_wrong = true}, product + "our kernel; muBLAS's result is wrong\n"},
      {{.numbers = mublas_known_numbers[1]}, product + "muBLAS, 0.5 ms; our kernel 1 ms\n"},
      {{.numbers = mublas_known_numbers[2]}, product + "muBLAS, 0.5 ms; our kernel 1 ms\n"},
      {{.numbers = {.no_transpose = 7}},
       "muBLAS is not used: mublasGemmEx does not multiply with any numbers of its enumerations that are known: status 2, status 2, status 2\n"
       "product bf16 6 x 8 x 5: our kernel; mublasGemmEx does not multiply with any numbers of its enumerations that are known: status 2, status 2, "
       "status 2\n"},
      {{.missing = {"mublasSetAtomicsMode"}},
       "products are our kernels': muBLAS must have the entries that are called; a fake lacks mublasSetAtomicsMode\n"},
      {{}, "muBLAS\n", true},
      {{}, "muBLAS is not used: the GPU must be mp_22 (S4000) or newer; it is mp_21\n", false, {.architecture = 21, .warp_width = 128}},
  };
  for (const situation& one : situations) {
    CAPTURE(one.says);
    fake_musa gpu(one.card);
    testing::fake_mublas blas(gpu, one.settings);
    {
      const musa_context on = blas.open(no_folder);
      exact_product numbers_of(on, one.has_bias);
      cuda_stream stream(on);
      numbers_of.bring(stream);
      if (on.properties().architecture == 21) {  // where bf16 is refused
        const buffer<musa> x(on, 64, memory_role::other);
        run_kernel(stream, kernel::matmul<cuda_memory, float>{.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .a = x.as<float>(), .b = x.as<float>(),
                                                              .c = x.as<float>().subspan(8, 4)}, {});
        stream.synchronize();
        CHECK(on.products_text() == one.says);
        CHECK(blas.calls() == 0);
        continue;
      }
      stream.prepare(numbers_of.kernel());
      CHECK(on.products_text() == one.says);
      const std::size_t multiplied = blas.calls_of("mublasGemmEx");
      stream.begin_capture();
      numbers_of.queue(stream);
      const auto step = stream.end_capture();
      stream.replay(step);
      CHECK(numbers_of.is_right(stream));
      numbers_of.queue(stream);
      CHECK(numbers_of.is_right(stream));
      CHECK(blas.calls_of("mublasGemmEx") == multiplied + (one.says.find(": muBLAS, ") != std::string::npos ? 2 : 0));
      CHECK(gpu.loads_in_captures() == 0);

      cuda_stream other(on);  // which has no handle yet
      other.begin_capture();
      numbers_of.queue(other);
      other.replay(other.end_capture());
      CHECK(numbers_of.is_right(other));
      numbers_of.queue(other);
      CHECK(numbers_of.is_right(other));
    }
    check_clean(gpu);
    check_clean(blas);
  }
}

TEST_CASE("a choice is remembered in a file, and checked again; wherever a call of muBLAS fails, our kernel multiplies or the error is ours") {
  const std::string folder = (std::filesystem::temp_directory_path() / concat("xtrain_mublas_", ::getpid())).string();
  const auto use = [&](fake_musa& gpu, testing::fake_mublas& blas, const std::string& cache) {
    std::string said;
    {
      const musa_context on = blas.open(cache);
      exact_product numbers_of(on);
      cuda_stream stream(on);
      numbers_of.bring(stream);
      const std::string thrown = what_is_thrown([&] {
        stream.prepare(numbers_of.kernel());
        numbers_of.queue(stream);
      });
      if (thrown == "nothing") CHECK(numbers_of.is_right(stream));
      said = thrown == "nothing" ? on.products_text() : thrown;
    }
    check_clean(gpu);
    check_clean(blas);
    return said;
  };
  std::size_t calls = 0;
  for (const char* const says : {"muBLAS, 0.5 ms; our kernel 1 ms\n", "muBLAS; known from an earlier run\n"}) {
    fake_musa gpu(s4000);
    testing::fake_mublas blas(gpu);
    CHECK(use(gpu, blas, folder) == concat("muBLAS\nproduct bf16 6 x 8 x 5: ", says));
    calls = blas.calls();
  }
  CHECK(calls > 6);
  std::size_t thrown = 0;
  for (std::size_t n = 1; n <= calls; ++n) {
    fake_musa gpu(s4000);
    testing::fake_mublas blas(gpu);
    blas.fail_call(n, 5);
    const std::string said = use(gpu, blas, folder);
    INFO("at ", n, ": ", said);
    CHECK((said.substr(0, 6) == "muBLAS" || said == "musa: mublasGemmEx of bf16 6 x 8 x 5 on device 0 failed with status 5"));
    thrown += said.substr(0, 6) == "muBLAS" ? 0 : 1;
  }
  CHECK(thrown == 2);  // of the product itself
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}
