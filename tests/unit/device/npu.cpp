// The device `npu` on an AscendCL that stands in for a card's: what it says where there is none, order, host functions, every documented contract violated
// once, and errors at every call.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/device/npu/npu.hpp>
#include <xtrain/testing/fake_ascend.hpp>
#include <xtrain/testing/npu_probe.hpp>

using namespace xtrain;
using testing::fake_ascend;

namespace {

template <class F>
std::string what_is_thrown(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "nothing";
}
void check_clean(const fake_ascend& card) {
  CHECK(card.violations() == "");
  CHECK(card.leaks() == "");
}

/// Numbers on the device, and work on them.
struct numbers {
  static constexpr std::size_t n = 40;
  explicit numbers(const npu_context& on) : device(on), x(on, n * 4, memory_role::other), y(on, n * 4, memory_role::other), host(on, n * 4) {
    for (std::size_t i = 0; i < n; ++i) host.as<float>()[i] = static_cast<float>(i);
  }
  void bring(npu_stream& stream) { stream.copy_from_host(x.as<float>().raw(), host.as<float>().data(), n * 4); }
  void fetch(npu_stream& stream) { stream.copy_to_host(host.as<float>().data(), x.as<float>().raw(), n * 4); }
  /// x += x
  void twice(npu_stream& stream) { run_kernel(stream, kernel::add<npu_memory, float>{.n = n, .x_n = x.as<float>(), .y_n = x.as<float>()}, {}); }
  [[nodiscard]] float last() const { return host.as<float>()[n - 1]; }

  npu_context device;
  buffer<npu> x, y;
  pinned_memory<npu> host;
};

}  // namespace

TEST_CASE("where no NPU can be used, a sentence says why") {
  const auto said = [](const testing::fake_ascend_config& settings, int device = 0) {
    const fake_ascend card(settings);
    return what_is_thrown([&] { (void)card.open(device); });
  };
  if (!npu::is_available()) {  // of this machine
    CHECK(npu::why_unavailable().starts_with("npu: "));
    CHECK(what_is_thrown([] { const npu::context on; }) == npu::why_unavailable());
  }
  const std::string none = load_npu_runtime("libno_such_ascendcl.so").why;
  CHECK(none.starts_with("npu: CANN must be installed, and its environment set (source set_env.sh of the installation); libno_such_ascendcl.so cannot be "
                         "loaded: "));
  const std::string other = load_npu_runtime("libc.so.6").why;  // a library without the functions
  CHECK(other.starts_with("npu: CANN must be a release with these functions: aclInit, aclrtGetDeviceCount, "));
  CHECK(other.find("libc.so.6 of CANN unknown has not") != std::string::npos);
  CHECK(said({.init_status = npu_status::stub_library}) ==
        "npu: AscendCL must not be its stub library; LD_LIBRARY_PATH names a folder of stubs before CANN's lib64 (fake_ascend)");
  CHECK(said({.devices = 0}) == "npu: there must be an Ascend NPU that this process may use; there is none");
  CHECK(said({.count_status = npu_status::driver_error}) ==
        "npu: AscendCL must answer; aclrtGetDeviceCount says: error of the driver (507899); CANN 9.1.0, fake_ascend");
  CHECK(said({.devices = 2}, 2) == "npu: the device must be at least 0 and below 2, the number of NPUs that this process may use; it is 2");
  CHECK(said({.is_initialized = true}) == "nothing");  // by another part of the process
  const fake_ascend unknown({.soc = "Ascend310P3"});
  CHECK(what_is_thrown([&] { (void)unknown.open(); }) ==
        "npu: the card must be a 910A, 910B or 910C; it is Ascend310P3, for which this device was not written: types and operators may differ without an "
        "error. npu_config::accepts_unknown_cards opens it by the rules of a 910B, to be compared by npu_probe");
  CHECK(npu_context(npu_config{.accepts_unknown_cards = true, .runtime = &unknown.runtime()}).description() ==
        "npu, Ascend310P3 (unknown generation), device 0, CANN 9.1.0, fake_ascend");
}

TEST_CASE("how overflow is treated is set once, before the first stream; other contexts of the card find it set") {
  const fake_ascend card;
  {
    const npu_context on = card.open();
    const npu_stream stream(on);
    const npu_context again = card.open();
    CHECK(card.calls_of("aclrtSetDeviceSatMode") == 1);
    CHECK(card.calls_of("aclrtGetDeviceSatMode") == 2);
  }
  check_clean(card);
}

TEST_CASE("a process opens the NPU of its rank on the machine; the card's generation and CANN's release are known") {
  ::setenv("SLURM_LOCALID", "1", 1);
  {
    const fake_ascend card({.devices = 2});
    CHECK(card.open(npu_config::local).description() == "npu, Ascend910B3 (A2), device 1, CANN 9.1.0, fake_ascend");
  }
  {
    const fake_ascend card;
    CHECK(card.open(npu_config::local).ordinal() == 0);
  }
  ::unsetenv("SLURM_LOCALID");
  using enum npu_generation;
  for (const auto& [soc, generation] : {std::pair{"Ascend910", first}, {"Ascend910A", first}, {"Ascend910B", first}, {"Ascend910ProA", first},
                                        {"Ascend910B1", a2}, {"Ascend910B4", a2}, {"Ascend910_9391", a3}, {"Ascend310P3", other}}) {
    const std::string card = soc;
    CAPTURE(card);
    CHECK(detail::generation_of(card) == generation);
  }
  CHECK(cann_version::in("Version=8.5.0\n") == cann_version{8, 5, 0});
  CHECK(cann_version::in("package_name=Ascend-cann-toolkit\nversion=9.1.RC2\ninnerversion=V100R001C23") == cann_version{9, 1, 0});
  CHECK(cann_version::in("version=trunk") == cann_version{});
  CHECK(cann_version{8, 5, 0} < cann_version{9, 0, 0});
  ::setenv("XTRAIN_CANN_VERSION", "9.0.1", 1);
  CHECK(cann_version::of_installation().text() == "9.0.1");
  ::unsetenv("XTRAIN_CANN_VERSION");
}

TEST_CASE("memory that an NPU does not have is refused with its role, and counted") {
  const fake_ascend card({.memory = std::size_t{1} << 20});
  {
    const npu_context on = card.open(), little = card.open(0, 1000);
    CHECK(on.memory_limit() == std::size_t{1} << 20);
    const buffer<npu> weights(on, std::size_t{768} << 10, memory_role::weights);
    CHECK(what_is_thrown([&] { const buffer<npu> more(on, std::size_t{512} << 10, memory_role::stash); }) ==
          "npu: stash needs 512.00 KiB; in use are 768.00 KiB (weights 768.00 KiB) of 1.00 MiB");
    CHECK(what_is_thrown([&] {  // another program has taken it
            const npu_context other = card.open(0, std::size_t{1} << 20);
            const buffer<npu> more(other, std::size_t{512} << 10, memory_role::batch);
          }) == "npu: batch needs 512.00 KiB; in use are 0 B of 1.00 MiB, and device 0, Ascend910B3, has no such piece left");
    CHECK(what_is_thrown([&] { const buffer<npu> more(little, 1001, memory_role::cache); }) == "npu: cache needs 1001 B; in use are 0 B of 1000 B");
    CHECK(on.memory().of(memory_role::weights) == std::size_t{768} << 10);
  }
  check_clean(card);
}

TEST_CASE("work is done in order when somebody waits for it; other streams are ordered by events; kernels without operators run on the host, by name") {
  for (const bool is_late : {true, false}) {
    const fake_ascend card({.is_late = is_late});
    {
      const npu_context on = card.open();
      numbers a(on);
      npu_stream first(on), second(on);
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
      CHECK(on.host_runs_text().starts_with("npu leaves kernels to the host:\n  add: 2 runs on the host, "));
      second.copy_within(a.y.as<float>().raw(), a.x.as<float>().raw(), numbers::n * 4);
      first.synchronize();
      a.fetch(first);
      first.synchronize();
      CHECK(a.last() == 0);
      second.synchronize();
      npu_stream moved(std::move(first));
      a.bring(moved);
      moved = npu_stream(on);  // what was queued is done
      a.fetch(moved);
      moved.synchronize();
      CHECK(a.last() == 0);
      std::vector<float> pageable(numbers::n, 5);  // the call itself waits: the memory may go
      moved.copy_from_host(a.x.as<float>().raw(), pageable.data(), numbers::n * 4);
      pageable.assign(numbers::n, 6);
      a.fetch(moved);
      moved.synchronize();
      CHECK(a.last() == 5);
    }
    check_clean(card);
  }
}

TEST_CASE("threads and NPUs: every call is made for the stream's own device") {
  const fake_ascend card({.devices = 2});
  {
    const npu_context zero = card.open(0), one = card.open(1);
    numbers a(zero), b(one);
    npu_stream of_zero(zero), of_one(one);
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
  check_clean(card);
}

TEST_CASE("functions of the host run in the order of their stream, and hold up no other; after one has thrown, whoever waits or follows is told") {
  for (const bool has_callbacks : {true, false}) {
    const fake_ascend card({.has_callbacks = has_callbacks});
    {
      const npu_context on = card.open();
      numbers a(on);
      npu_stream stream(on), follower(on), bystander(on);
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
      std::shared_ptr<void> held(on.allocate_pinned(100), [on](void* memory) { on.release_pinned(memory); });
      stream.queue_host_function([held = std::move(held)] {});
      stream.synchronize();

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
      CHECK(*follower.host_failure() == 1);
      CHECK(*bystander.host_failure() == 0);
      a.bring(stream);  // is not queued
      before.synchronize();
      bystander.synchronize();
      CHECK(!ran);
    }
    check_clean(card);
  }
  const fake_ascend card;
  {
    const npu_context on = card.open();
    npu_stream one(on), other(on);
    std::promise<int> answer;
    int got = 0;
    one.queue_host_function([&got, question = answer.get_future().share()] { got = question.get(); });
    other.queue_host_function([&] { answer.set_value(5); });  // which the function above waits for
    other.synchronize();
    one.synchronize();
    CHECK(got == 5);
  }
  check_clean(card);
}

namespace {

/// What a call that the documentation forbids returns, and that the fake has noticed it.
struct contract {
  const char* what;
  int status;
  int (*violate)(const npu_runtime&, void* stream, void* device_memory, void* pinned);
};
int on_other_device(const npu_runtime& r, int (*call)(const npu_runtime&)) {
  (void)r.set_device(1);
  const int status = call(r);
  (void)r.set_device(0);
  return status;
}
template <class F>
int in_new_thread(F f) {
  int status = 0;
  std::thread([&] { status = f(); }).join();
  return status;
}

constexpr contract contracts[] = {
    {"a device that is not there", npu_status::invalid_device, [](const npu_runtime& r, void*, void*, void*) { return r.set_device(2); }},
    {"a thread without a device", npu_status::no_context,
     [](const npu_runtime& r, void*, void*, void*) {
       return in_new_thread([&] {
         void* memory = nullptr;
         return r.allocate(&memory, 64, 0);
       });
     }},
    {"a stream of another device", npu_status::wrong_context,
     [](const npu_runtime& r, void* s, void* d, void*) {
       (void)r.set_device(1);
       const int status = r.fill(d, 64, 0, 64, s);
       (void)r.set_device(0);
       return status;
     }},
    {"a stream that is not there", npu_status::wrong_context, [](const npu_runtime& r, void*, void* d, void*) { return r.synchronize_stream(d); }},
    {"no bytes", npu_status::invalid_parameter,
     [](const npu_runtime& r, void*, void*, void*) {
       void* memory = nullptr;
       return r.allocate(&memory, 0, 0);
     }},
    {"more than there is", npu_status::out_of_memory,
     [](const npu_runtime& r, void*, void*, void*) {
       void* memory = nullptr;
       return r.allocate(&memory, std::size_t{1} << 40, 0);
     }},
    {"release of nothing", npu_status::invalid_parameter, [](const npu_runtime& r, void*, void*, void*) { return r.release(nullptr); }},
    {"release of the middle of a block", npu_status::runtime_parameter,
     [](const npu_runtime& r, void*, void* d, void*) { return r.release(static_cast<char*>(d) + 32); }},
    {"a copy larger than its destination", npu_status::runtime_parameter,
     [](const npu_runtime& r, void* s, void* d, void* p) { return r.copy(d, 32, p, 64, npu_copy::to_device, s); }},
    {"a copy in the other direction", npu_status::runtime_parameter,
     [](const npu_runtime& r, void* s, void* d, void* p) { return r.copy(d, 64, p, 64, npu_copy::to_host, s); }},
    {"a copy from host to host", npu_status::not_supported,
     [](const npu_runtime& r, void* s, void*, void* p) { return r.copy(p, 64, static_cast<char*>(p) + 64, 64, npu_copy::host_to_host, s); }},
    {"a copy past a block", npu_status::runtime_parameter,
     [](const npu_runtime& r, void* s, void* d, void* p) { return r.copy(static_cast<char*>(d) + 64, 4096, p, 128, npu_copy::to_device, s); }},
    {"a fill past a block", npu_status::runtime_parameter,
     [](const npu_runtime& r, void* s, void* d, void*) { return r.fill(d, 4096, 0, 4096, s); }},
    {"a fill of host memory", npu_status::runtime_parameter, [](const npu_runtime& r, void* s, void*, void* p) { return r.fill(p, 64, 0, 64, s); }},
    {"a wait for an event that was not recorded", npu_status::runtime_parameter,
     [](const npu_runtime& r, void* s, void*, void*) {
       void* event = nullptr;
       (void)r.create_event(&event, npu_option::event_for_order);
       const int status = r.wait_event(s, event);
       (void)r.destroy_event(event);
       return status;
     }},
    {"an event that is not there", npu_status::invalid_handle, [](const npu_runtime& r, void* s, void* d, void*) { return r.record_event(d, s); }},
    {"an event of another device", npu_status::wrong_context,
     [](const npu_runtime& r, void* s, void*, void*) {
       static void* event = nullptr;
       (void)on_other_device(r, [](const npu_runtime& of) { return of.create_event(&event, npu_option::event_for_order); });
       const int status = r.record_event(event, s);
       (void)r.destroy_event(event);
       return status;
     }},
    {"the failure mode set twice", npu_status::runtime_parameter,
     [](const npu_runtime& r, void* s, void*, void*) { return r.set_failure_mode(s, npu_option::stop_on_failure); }},
    {"saturation after a stream", npu_status::runtime_parameter, [](const npu_runtime& r, void*, void*, void*) { return r.set_saturation(0); }},
    {"a host function without a thread", npu_status::callback_not_registered,
     [](const npu_runtime& r, void* s, void*, void*) { return r.queue_callback([](void*) {}, nullptr, 1, s); }},
    {"a wait for no time", npu_status::runtime_parameter, [](const npu_runtime& r, void*, void*, void*) { return r.run_callbacks(0); }},
    {"a call in a host function", npu_status::not_supported,
     [](const npu_runtime& r, void* s, void*, void*) {
       static int status;
       static const npu_runtime* runtime;
       runtime = &r;
       std::atomic<bool> is_done{false};
       std::thread thread([&] {
         (void)r.set_device(0);
         while (!is_done) (void)r.run_callbacks(5);
       });
       const auto id = static_cast<std::uint64_t>(thread.native_handle());
       (void)r.subscribe_thread(id, s);
       (void)r.queue_callback([](void*) { status = runtime->set_device(0); }, nullptr, 1, s);
       (void)r.synchronize_stream(s);
       is_done = true;
       thread.join();
       (void)r.unsubscribe_thread(id, s);
       return status;
     }},
};

}  // namespace

TEST_CASE("each documented contract of the runtime, violated once, is refused with the documented status and noticed") {
  for (const contract& one : contracts) {
    CAPTURE(one.what);
    const fake_ascend card({.devices = 2});
    {
      const npu_context on = card.open();
      const buffer<npu> memory(on, 96, memory_role::other);
      const pinned_memory<npu> pinned(on, 256);
      const npu_stream stream(on);
      const int status = one.violate(card.runtime(), stream.queue(), memory.as<std::byte>().raw(), pinned.as<std::byte>().data());
      CHECK(status == one.status);
      if (!npu_status::is_out_of_memory(status)) CHECK(card.violations().find(concat("(", status, ")\n")) != std::string::npos);
    }
    CHECK(card.leaks() == "");
  }
  const fake_ascend card;
  CHECK(card.runtime().set_device(0) == npu_status::not_initialized);
  CHECK(card.runtime().init(nullptr) == npu_status::success);
  CHECK(card.runtime().init(nullptr) == npu_status::repeated_initialization);
  // what a card leaves undefined
  const auto found = [](auto&& work) {
    const fake_ascend with;
    (void)what_is_thrown([&] {
      const npu_context on = with.open();
      numbers a(on);
      npu_stream stream(on);
      work(a, stream);
      stream.synchronize();
    });
    return with.violations();
  };
  CHECK(found([](numbers& a, npu_stream& s) {
          a.bring(s);
          a.x = buffer<npu>(a.device, 4, memory_role::other);
        }).starts_with("aclrtFree, which does not wait, of memory that queued work uses (0)\na queued copy: a write of 160 bytes outside what is allocated"));
}

namespace {

/// Whatever the device does in a program, once.
void use_everything(const fake_ascend& card) {
  const npu_context on = card.open();
  numbers a(on);
  npu_stream stream(on), side(on);
  a.bring(stream);
  a.twice(stream);
  side.wait(stream.record());
  side.queue_host_function([] {});
  side.copy_within(a.y.as<float>().raw(), a.x.as<float>().raw(), numbers::n * 4);
  const auto copied = side.record();
  stream.wait(copied);
  stream.fill_zero(a.y.as<float>().raw(), numbers::n * 4);
  a.twice(stream);
  a.fetch(stream);
  copied.synchronize();
  stream.synchronize();
  if (a.last() != 4 * 39) throw std::logic_error("a wrong result, silently");
}

}  // namespace

TEST_CASE("an error at any call of the runtime, or in any work on the NPU, is a clear error, and nothing is lost; so is the loss of the device") {
  std::size_t calls = 0, works = 0;
  {
    fake_ascend card;
    card.fail_call(0, 0);
    card.fail_work(0, 0);
    use_everything(card);
    calls = card.calls();
    works = card.works();
    check_clean(card);
  }
  CHECK(calls > 40);
  CHECK(works > 8);
  const auto check = [](auto&& inject, std::size_t& quiet) {
    fake_ascend card;
    inject(card);
    std::string said;
    try {
      use_everything(card);
      ++quiet;
    } catch (const error& e) {
      said = e.what();
      CHECK(said.starts_with("npu: "));
    }
    INFO(said);
    CHECK(card.violations() == "");
    CHECK(card.leaks() == "");
  };
  for (const int status : {npu_status::out_of_memory, npu_status::internal_error}) {
    std::size_t quiet = 0;
    for (std::size_t n = 1; n <= calls; ++n) {
      CAPTURE(n);
      check([&](fake_ascend& card) { card.fail_call(n, status); }, quiet);
    }
    CHECK(quiet < 40);  // calls that release, after the result is there, and of threads that run host functions
  }
  std::size_t quiet = 0;
  for (std::size_t n = 1; n <= works; ++n) {
    CAPTURE(n);
    check([&](fake_ascend& card) { card.fail_work(n, npu_status::vector_core_exception); }, quiet);
    check([&](fake_ascend& card) { card.lose_device(n); }, quiet);
  }
  CHECK(quiet == 0);
  fake_ascend card;
  CHECK(what_is_thrown([&] {
          const npu_context on = card.open();
          numbers a(on);
          npu_stream stream(on);
          a.bring(stream);
          card.fail_work(2, npu_status::vector_core_exception);
          a.twice(stream);
          stream.synchronize();
        }) == "npu: aclrtSynchronizeStream, after kernels of which the last was add, on device 0 failed: exception of a vector core (507035): EZ9999: a task "
              "of a stream on device 0 has failed; CANN's logs are in ~/ascend/log");
  check_clean(card);
}

TEST_CASE("a dry run needs no NPU: it counts") {
  const auto on = npu_context::for_dry_run({});
  const buffer<npu> x(on, 400, memory_role::weights);
  npu_stream stream(on);
  run_kernel(stream, kernel::add<npu_memory, float>{.n = 100, .x_n = x.as<float>(), .y_n = x.as<float>()}, {});
  stream.wait(stream.record());
  stream.synchronize();
  CHECK(on.memory().total_now == 400);
  CHECK(on.record().of("add").runs == 1);
  CHECK(on.record().synchronisations == 1);
}

TEST_CASE("the questions that are asked of a card have answers on the fake; what a card lacks is named") {
  {
    const fake_ascend card;
    const std::string said = testing::text_of(testing::probe_npu(card.open()));
    INFO(said);
    CHECK(said.find("FAIL") == std::string::npos);
    CHECK(said.find("may call AscendCL (the device does not rely on it): it may not: not supported (207000)\n") != std::string::npos);
  }
  const fake_ascend old({.has_callbacks = false});
  npu_runtime without = old.runtime();
  without.abort_stream = nullptr;
  without.synchronize_stream_for = nullptr;
  const std::string said = testing::text_of(testing::probe_npu(npu_context(npu_config{.runtime = &without})));
  CHECK(said.find("there is no aclrtLaunchCallback: the host waits for each function\n") != std::string::npos);
  CHECK(said.find("FAIL  a stream that is aborted discards what is queued, and can be destroyed: there is no aclrtStreamAbort") != std::string::npos);
}
