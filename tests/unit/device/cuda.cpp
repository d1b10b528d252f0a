// The device `cuda` on a runtime that stands in for a GPU's: what it says where there is no GPU, order, capture, host functions, and errors at every call.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/fake_cuda.hpp>
#include "fake_gpu_checks.hpp"

using namespace xtrain;
using testing::fake_cuda;

namespace {

/// Numbers on the device, and work on them.
struct numbers {
  static constexpr std::size_t n = 40;
  explicit numbers(const cuda_context& on) : device(on), x(on, n * 4, memory_role::other), y(on, n * 4, memory_role::other), host(on, n * 4) {
    for (std::size_t i = 0; i < n; ++i) host.as<float>()[i] = static_cast<float>(i);
  }
  void bring(cuda_stream& stream) { stream.copy_from_host(x.as<float>().raw(), host.as<float>().data(), n * 4); }
  void fetch(cuda_stream& stream) { stream.copy_to_host(host.as<float>().data(), x.as<float>().raw(), n * 4); }
  /// x += x
  void twice(cuda_stream& stream) { run_kernel(stream, kernel::add<cuda_memory, float>{.n = n, .x_n = x.as<float>(), .y_n = x.as<float>()}, {}); }
  [[nodiscard]] float last() const { return host.as<float>()[n - 1]; }

  cuda_context device;
  buffer<cuda> x, y;
  pinned_memory<cuda> host;
};

}  // namespace

TEST_CASE("where no GPU can be used, a sentence says why") {
  const auto said = [](const testing::fake_cuda_config& settings, int device = 0) {
    const fake_cuda gpu(settings);
    const std::string text = what_is_thrown([&] { (void)gpu.open(device); });
    CHECK(gpu.leaks() == "");
    return text;
  };
  CHECK(what_is_thrown([] { const cuda::context on; }) ==
        "cuda: the program must be linked with kernels that nvcc compiled (xtrain_add_cuda_kernels, target xtrain::cuda_kernels); this program is not; see "
        "device/cuda/README.md");
  CHECK(!cuda::is_available());
  CHECK(said({.driver = 0}) ==
        "cuda: an NVIDIA driver must be installed; this machine has none that can be loaded (libcuda.so.1); see device/cuda/README.md");
  CHECK(said({.driver = 12040, .status = cuda_status::driver_too_old}) ==
        "cuda: the driver must be one for CUDA 13.0 or later; it is one for CUDA 12.4; update the driver, or compile with an older toolkit");
  CHECK(said({.status = cuda_status::no_device}) == "cuda: there must be an NVIDIA GPU that this process may use; there is none");
  CHECK(said({.status = cuda_status::driver_mismatch}) == "cuda: the driver must answer; it says: unknown error (cudaErrorUnknown)");
  CHECK(said({.devices = 2}, 2) == "cuda: the device must be at least 0 and below 2, the number of GPUs that this process may use; it is 2");
  CHECK(said({.probe = cuda_status::no_kernel_image}) ==
        "cuda: kernels must be compiled for the GPU's architecture, sm_90 (fake GPU); they are compiled for 900; see xtrain_add_cuda_kernels");
}

TEST_CASE("a process opens the GPU of its rank on the machine, or the only one that it sees") {
  ::setenv("SLURM_LOCALID", "1", 1);
  {
    const fake_cuda gpu({.devices = 2});
    CHECK(gpu.open(cuda_config::local).description() == "cuda, fake GPU, device 1, sm_90, 4 multiprocessors");
  }
  {
    const fake_cuda gpu;
    CHECK(gpu.open(cuda_config::local).ordinal() == 0);
  }
  ::setenv("SLURM_LOCALID", "2", 1);
  const fake_cuda gpu({.devices = 2});
  CHECK(what_is_thrown([&] { (void)gpu.open(cuda_config::local); }) ==
        "cuda: the device must be at least 0 and below 2, the number of GPUs that this process may use; it is 2, the process's rank on this machine");
  ::unsetenv("SLURM_LOCALID");
}

TEST_CASE("memory that a GPU does not have is refused with its role, and counted") {
  const fake_cuda gpu({.memory = std::size_t{1} << 20});
  {
    const cuda_context on = gpu.open(), little = gpu.open(0, 1000);
    CHECK(on.memory_limit() == std::size_t{1} << 20);
    const buffer<cuda> weights(on, std::size_t{768} << 10, memory_role::weights);
    CHECK(what_is_thrown([&] { const buffer<cuda> more(on, std::size_t{512} << 10, memory_role::stash); }) ==
          "cuda: stash needs 512.00 KiB; in use are 768.00 KiB (weights 768.00 KiB) of 1.00 MiB");
    // another program has taken it
    CHECK(what_is_thrown([&] {
            const cuda_context other = gpu.open(0, std::size_t{1} << 20);
            const buffer<cuda> more(other, std::size_t{512} << 10, memory_role::batch);
          }) == "cuda: batch needs 512.00 KiB; in use are 0 B of 1.00 MiB, and device 0, fake GPU, has no such piece left");
    CHECK(what_is_thrown([&] { const buffer<cuda> more(little, 1001, memory_role::cache); }) == "cuda: cache needs 1001 B; in use are 0 B of 1000 B");
    CHECK(on.memory().of(memory_role::weights) == std::size_t{768} << 10);
    CHECK(on.memory().total_now == std::size_t{768} << 10);
  }
  check_clean(gpu);
}

TEST_CASE("work is done in order when somebody waits for it; other streams are ordered by events") {
  for (const bool is_late : {true, false}) {
    const fake_cuda gpu({.is_late = is_late});
    {
      const cuda_context on = gpu.open();
      numbers a(on);
      cuda_stream first(on), second(on);
      a.bring(first);
      a.twice(first);
      second.wait(first.record());
      a.twice(second);
      a.fetch(second);
      const auto fetched = second.record();
      first.wait(fetched);
      first.fill_zero(a.x.as<float>().raw(), numbers::n * 4);
      if (is_late) CHECK(a.last() == 39);
      fetched.synchronize();
      CHECK(a.last() == 4 * 39);
      second.copy_within(a.y.as<float>().raw(), a.x.as<float>().raw(), numbers::n * 4);  // not ordered with first, which has not been waited for
      first.synchronize();
      a.fetch(first);
      first.synchronize();
      CHECK(a.last() == 0);
      second.synchronize();
      cuda_stream moved(std::move(first));
      a.bring(moved);
      moved = cuda_stream(on);  // what was queued is done
      a.fetch(moved);
      moved.synchronize();
      CHECK(a.last() == 0);
    }
    check_clean(gpu);
  }
}

TEST_CASE("threads and GPUs: every call is made for the stream's own device") {
  const fake_cuda gpu({.devices = 2});
  {
    const cuda_context zero = gpu.open(0), one = gpu.open(1);
    numbers a(zero), b(one);
    cuda_stream of_zero(zero), of_one(one);
    a.bring(of_zero);
    b.bring(of_one);
    of_one.wait(of_zero.record());
    std::thread([&] { b.twice(of_one); }).join();
    a.twice(of_zero);
    std::thread([&] {
      a.fetch(of_zero);
      b.fetch(of_one);
      of_one.synchronize();
      of_zero.synchronize();
    }).join();
    CHECK(a.last() == 78);
    CHECK(b.last() == 78);
  }
  check_clean(gpu);
}

TEST_CASE("functions of the host run in the order of their stream, and hold up no other") {
  for (const bool has_wait_value : {true, false}) {
    const fake_cuda gpu({.has_wait_value = has_wait_value});
    {
      const cuda_context on = gpu.open();
      numbers a(on);
      cuda_stream stream(on);
      float seen = 0;
      a.bring(stream);
      a.twice(stream);
      a.fetch(stream);
      stream.queue_host_function([&] {
        seen = a.last();
        a.host.as<float>()[numbers::n - 1] = 7;
      });
      a.bring(stream);
      a.twice(stream);
      a.fetch(stream);
      stream.record().synchronize();
      CHECK(seen == 78);
      CHECK(a.last() == 14);
      // memory that the function holds is released on its thread
      std::shared_ptr<void> held(on.allocate_pinned(100), [on](void* memory) { on.release_pinned(memory); });
      stream.queue_host_function([held = std::move(held)] {});
      stream.synchronize();
    }
    check_clean(gpu);
  }
  const fake_cuda gpu;
  {
    const cuda_context on = gpu.open();
    cuda_stream one(on), other(on);
    std::promise<int> answer;
    int got = 0;
    one.queue_host_function([&got, question = answer.get_future().share()] { got = question.get(); });
    other.queue_host_function([&] { answer.set_value(5); });  // which the function above waits for
    one.synchronize();
    CHECK(got == 5);
  }
  check_clean(gpu);
}

TEST_CASE("after a function of the host has thrown, no later one runs, and whoever waits for the stream or for one that follows it is told") {
  for (const bool has_wait_value : {true, false}) {
    const fake_cuda gpu({.has_wait_value = has_wait_value});
    {
      const cuda_context on = gpu.open();
      numbers a(on);
      cuda_stream stream(on), follower(on), bystander(on);
      std::atomic<bool> ran{false};
      const auto before = stream.record();
      stream.queue_host_function([] { throw comm_error("a peer is lost"); });
      stream.queue_host_function([&] { ran = true; });
      follower.wait(stream.record());
      const auto after = follower.record();
      follower.queue_host_function([&] { ran = true; });
      CHECK(what_is_thrown([&] { stream.synchronize(); }) == "a peer is lost");
      CHECK(what_is_thrown([&] { after.synchronize(); }) == "a peer is lost");
      CHECK(what_is_thrown([&] { follower.synchronize(); }) == "a peer is lost");
      CHECK(what_is_thrown([&] { stream.record().synchronize(); }) == "a peer is lost");
      a.bring(stream);  // is not queued
      before.synchronize();
      bystander.synchronize();
      CHECK(!ran);
    }
    check_clean(gpu);
  }
}

TEST_CASE("what a GPU does after a function of the host has thrown finds the stream's mark, in captured work too") {
  for (const bool is_other_stream : {false, true}) {
    const fake_cuda gpu;
    {
      const cuda_context on = gpu.open();
      numbers a(on);
      cuda_stream stream(on), follower(on), bystander(on);
      cuda_stream& last = is_other_stream ? follower : stream;
      pinned_memory<cuda> seen(on, sizeof(double));
      double& value = seen.as<double>()[0];
      last.begin_capture();
      last.copy_from_host(a.x.as<double>().raw(), last.host_failure(), sizeof(double));
      last.copy_to_host(&value, a.x.as<double>().raw(), sizeof(double));
      const auto look = last.end_capture();
      value = 7;
      last.replay(look);
      last.synchronize();
      CHECK(value == 0);
      const std::size_t replays = gpu.calls_of("cudaGraphLaunch");
      stream.queue_host_function([&] {  // the host has queued what follows
        while (gpu.calls_of("cudaGraphLaunch") == replays) std::this_thread::yield();
        throw comm_error("a peer is lost");
      });
      if (is_other_stream) follower.wait(stream.record());
      last.replay(look);
      CHECK(what_is_thrown([&] { last.synchronize(); }) == "a peer is lost");
      CHECK(value == 1);
      CHECK(*bystander.host_failure() == 0);
      bystander.wait(stream.record());
      CHECK(*bystander.host_failure() == 1);
    }
    check_clean(gpu);
  }
}

TEST_CASE("kernels that are prepared load nothing when they are captured") {
  const fake_cuda gpu;
  {
    const cuda_context on = gpu.open();
    numbers a(on);
    cuda_stream stream(on);
    const kernel::sum<cuda_memory, float> sum{.n = numbers::n, .x_n = a.x.as<float>(), .sum_1 = a.y.as<double>().subspan(0, 1)};
    const buffer<cuda> scratch(on, scratch_bytes(on.properties(), sum), memory_role::workspace);
    const auto capture = [&](auto&& work) {
      stream.begin_capture();
      work();
      return stream.end_capture();
    };
    stream.prepare(sum);
    CHECK(gpu.calls_of("cudaLaunchKernel") == 0);
    (void)capture([&] { run_kernel(stream, sum, scratch.as<std::byte>()); });
    CHECK(gpu.calls_of("cudaLaunchKernel") > 0);
    CHECK(gpu.loads_in_captures() == 0);
    (void)capture([&] { a.twice(stream); });
    CHECK(gpu.loads_in_captures() == 1);
    (void)capture([&] { a.twice(stream); });
    CHECK(gpu.loads_in_captures() == 1);
    CHECK(what_is_thrown([&] { (void)capture([&] { stream.prepare(sum); }); }) ==
          "cuda: captured work must be such that it can be replayed; a kernel was prepared");
  }
  check_clean(gpu);
}

TEST_CASE("captured work is replayed in one launch; what cannot be replayed is refused and ends the capture") {
  const fake_cuda gpu;
  {
    const cuda_context on = gpu.open();
    numbers a(on);
    cuda_stream stream(on);
    const auto capture = [&](auto&& work) {
      stream.begin_capture();
      work();
      return stream.end_capture();
    };
    const auto step = capture([&] {
      a.twice(stream);
      a.fetch(stream);
    });
    CHECK(step.size() == 2);
    CHECK(a.last() == 39);
    a.bring(stream);
    const std::size_t launches = gpu.calls_of("cudaLaunchKernel");
    stream.replay(step);
    stream.replay(step);
    stream.synchronize();
    CHECK(a.last() == 4 * 39);
    CHECK(gpu.calls_of("cudaLaunchKernel") == launches);
    CHECK(gpu.calls_of("cudaGraphLaunch") == 2);
    CHECK(gpu.calls_of("cudaGraphInstantiate") == 1);

    CHECK(step.difference(capture([&] {
            a.twice(stream);
            a.fetch(stream);
          })) == "");
    CHECK(step.difference(capture([&] { a.twice(stream); })) == "there are 2 and 1 launches");
    CHECK(step.difference(capture([&] {
            a.twice(stream);
            a.bring(stream);
          })) == "launch 2 of 2 is copy_to_host and copy_from_host");
    std::vector<float> pageable(4);
    const std::string refused = "cuda: captured work must be such that it can be replayed; ";
    const auto refusal = [&](auto&& work) { return what_is_thrown([&] { (void)capture(work); }); };
    CHECK(refusal([&] { stream.synchronize(); }) == refused + "the host waited for the stream");
    CHECK(refusal([&] { (void)stream.record(); }) == refused + "an event was recorded");
    CHECK(refusal([&] { stream.queue_host_function([] {}); }) == refused + "a host function was queued");
    CHECK(refusal([&] { stream.replay(step); }) == refused + "captured work was replayed");
    CHECK(refusal([&] { stream.copy_from_host(a.x.as<float>().raw(), pageable.data(), 16); }) ==
          refused + "a copy from or to host memory that is not pinned");
    stream.cancel_capture();
    CHECK(gpu.violations() == "");
    CHECK(refusal([&] { const buffer<cuda> more(on, 100, memory_role::other); }) ==
          "cuda: cudaMalloc on device 0 failed: operation not permitted when stream is capturing (cudaErrorStreamCaptureUnsupported)");
    stream.cancel_capture();
    CHECK(gpu.violations() == "cudaMalloc in a thread that captures\n");
    a.bring(stream);
    a.fetch(stream);
    stream.synchronize();
  }
  CHECK(gpu.leaks() == "");
}

TEST_CASE("the fake finds what a GPU leaves undefined") {
  const auto found = [](auto&& work) {
    const fake_cuda gpu({.devices = 2});
    (void)what_is_thrown([&] {
      const cuda_context on = gpu.open();
      numbers a(on);
      cuda_stream stream(on);
      work(gpu, a, stream);
      stream.synchronize();
    });
    return gpu.violations();
  };
  CHECK(found([](auto&, numbers& a, cuda_stream& s) { s.fill_zero(a.x.as<float>().raw(), numbers::n * 4 + 1); }) ==
        "cudaMemsetAsync: a write of 161 bytes outside what is allocated\n");
  CHECK(found([](auto&, numbers&, cuda_stream& s) {
          std::vector<float> pageable(8);
          s.copy_within(pageable.data(), pageable.data() + 4, 16);
        }) == "cudaMemcpyAsync from host to host memory\n");
  CHECK(found([](auto&, numbers& a, cuda_stream& s) {
          a.bring(s);
          a.x = buffer<cuda>(a.device, 4, memory_role::other);
        }) == "a queued copy: a write of 160 bytes outside what is allocated\n");
  CHECK(found([](auto&, numbers& a, cuda_stream& s) {
          const auto beyond = span_of<float, cuda_memory>(a.x.as<float>().raw(), numbers::n + 1);
          run_kernel(s, kernel::add<cuda_memory, float>{.n = numbers::n + 1, .x_n = beyond, .y_n = beyond}, {});
          s.synchronize();
        }) == "memory after an allocation of 160 bytes was written\n");
  CHECK(found([](auto& gpu, numbers&, cuda_stream& s) {
          void* event = nullptr;
          (void)gpu.runtime().create_event(&event);
          (void)gpu.runtime().wait_event(s.raw(), event);
          (void)gpu.runtime().set_device(1);
          (void)gpu.runtime().record_event(event, s.raw());
          (void)gpu.runtime().destroy_event(event);
        }) == "cudaStreamWaitEvent for an event that was not recorded\ncudaEventRecord: the stream is of device 0, the thread's device is 1\n");
}

namespace {

/// Whatever the device does in a program, once.
void use_everything(const fake_cuda& gpu) {
  const cuda_context on = gpu.open();
  numbers a(on);
  cuda_stream stream(on), side(on);
  a.bring(stream);
  a.twice(stream);
  side.wait(stream.record());
  side.queue_host_function([] {});
  side.copy_within(a.y.as<float>().raw(), a.x.as<float>().raw(), numbers::n * 4);
  const auto copied = side.record();
  stream.wait(copied);
  stream.fill_zero(a.y.as<float>().raw(), numbers::n * 4);
  a.fetch(stream);
  copied.synchronize();
  stream.synchronize();
  stream.begin_capture();
  a.twice(stream);
  a.fetch(stream);
  const auto step = stream.end_capture();
  stream.replay(step);
  stream.replay(step);
  stream.synchronize();
  if (a.last() != 8 * 39) throw std::logic_error("a wrong result, silently");
}

}  // namespace

TEST_CASE("an error at any call of the runtime, or in any work on the GPU, is a clear error, and nothing is lost") {
  std::size_t calls = 0, works = 0;
  {
    fake_cuda gpu;
    gpu.fail_call(0, 0);
    gpu.fail_work(0, 0);
    use_everything(gpu);
    calls = gpu.calls();
    works = gpu.works();
    check_clean(gpu);
  }
  CHECK(calls > 60);
  CHECK(works > 8);
  const auto check = [](auto&& inject, std::size_t n, std::size_t& quiet) {
    fake_cuda gpu;
    inject(gpu, n);
    std::string said;
    try {
      use_everything(gpu);
      ++quiet;
    } catch (const error& e) {
      said = e.what();
      CHECK(said.substr(0, 6) == "cuda: ");
    }
    INFO("at ", n, ": ", said);
    check_clean(gpu);
  };
  for (const int status : {cuda_status::out_of_memory, cuda_status::launch_failure, cuda_status::invalid_value}) {
    std::size_t quiet = 0;
    for (std::size_t n = 1; n <= calls; ++n) check([&](fake_cuda& gpu, std::size_t at) { gpu.fail_call(at, status); }, n, quiet);
    CHECK(quiet < 40);  // calls that release, after the result is there
  }
  std::size_t quiet = 0;
  for (std::size_t n = 1; n <= works; ++n) check([&](fake_cuda& gpu, std::size_t at) { gpu.fail_work(at, cuda_status::illegal_address); }, n, quiet);
  CHECK(quiet == 0);
  fake_cuda gpu;
  CHECK(what_is_thrown([&] {
          const cuda_context on = gpu.open();
          numbers a(on);
          cuda_stream stream(on);
          a.bring(stream);
          gpu.fail_work(2, cuda_status::illegal_address);
          a.twice(stream);
          stream.synchronize();
        }) == "cuda: cudaStreamSynchronize, after kernels of which the last was add, on device 0 failed: an illegal memory access was encountered "
              "(cudaErrorIllegalAddress)");
  check_clean(gpu);
}

TEST_CASE("a dry run needs no GPU: it counts") {
  const auto on = cuda_context::for_dry_run({});
  const buffer<cuda> x(on, 400, memory_role::weights);
  cuda_stream stream(on);
  run_kernel(stream, kernel::add<cuda_memory, float>{.n = 100, .x_n = x.as<float>(), .y_n = x.as<float>()}, {});
  stream.wait(stream.record());
  stream.synchronize();
  CHECK(on.memory().total_now == 400);
  CHECK(on.record().of("add").runs == 1);
  CHECK(on.record().synchronisations == 1);
}

TEST_CASE("kernels agree with the reference on a late stream") {
  const fake_cuda gpu;
  {
    testing::conformance<cuda> suite(gpu.open());
    testing::detail::check_products<bf16>(suite);
    testing::detail::check_elementwise<bf16>(suite);
    testing::detail::check_optimizers<bf16>(suite);
    INFO(suite.text());
    CHECK(suite.passed());
  }
  check_clean(gpu);
}
