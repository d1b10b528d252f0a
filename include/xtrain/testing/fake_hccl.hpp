// An HCCL without NPUs: ranks are threads of one process, each with a device of testing/fake_ascend.hpp. It checks what HCCL's documentation asks of callers,
// says which calls of ranks differ where HCCL would hang, rounds sums at every hop, and fails where a test wants it to.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/comm/hccl/library.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/testing/fake_ascend.hpp>

namespace xtrain::testing {

/// One exists at a time.
class fake_hccl {
 public:
  /// connect_timeout: HCCL_CONNECT_TIMEOUT
  explicit fake_hccl(fake_ascend& cards, std::chrono::milliseconds connect_timeout = std::chrono::seconds(20))
      : cards_(cards), connect_timeout_(connect_timeout) {
    self() = this;
  }
  ~fake_hccl() { self() = nullptr; }
  fake_hccl(const fake_hccl&) = delete;
  fake_hccl& operator=(const fake_hccl&) = delete;

  [[nodiscard]] const hccl_library& library() const { return table_; }

  /// The n-th call from now, counted from 1, returns this status. It does nothing, unless it destroys.
  void fail_call(std::size_t n, int status) {
    cards_.locked([&] {
      calls_ = 0;
      failing_call_ = n;
      call_status_ = status;
    });
  }
  /// Since fail_call. Calls that only ask do not count: they come at any time.
  [[nodiscard]] std::size_t calls() const {
    return cards_.locked([&] { return calls_; });
  }
  [[nodiscard]] std::size_t calls_of(const std::string& name) const {
    return cards_.locked([&] {
      const auto found = counts_.find(name);
      return found == counts_.end() ? std::size_t{0} : found->second;
    });
  }
  /// From now on, communicators of this rank say that they have failed.
  void fail_rank(int rank, int status) {
    cards_.locked([&] {
      for (const auto& [handle, one] : live_)
        if (one->rank == rank) one->state = status;
    });
  }
  [[nodiscard]] std::string violations() const {
    return cards_.locked([&] { return violations_; });
  }
  /// What was made and not destroyed; empty if nothing.
  [[nodiscard]] std::string leaks() const {
    return cards_.locked([&] { return live_.empty() ? std::string() : concat(live_.size(), " communicators"); });
  }

 private:
  enum class kind { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, message };
  /// A collective of all ranks, or a message between two.
  struct meeting {
    kind what{};
    std::size_t elements = 0;
    int type = 0, operation = 0, root = 0;
    struct participant {
      bool is_queued = false, has_arrived = false;
      void* queue = nullptr;
      const void* from = nullptr;
      void* to = nullptr;
    };
    std::vector<participant> ranks{};  // of a message: sender, receiver
    bool is_done = false;
    [[nodiscard]] bool is_same(const meeting& other) const {
      return what == other.what && elements == other.elements && type == other.type && operation == other.operation && root == other.root;
    }
    [[nodiscard]] std::string text() const {
      static constexpr const char* names[] = {"HcclAllReduce", "HcclAllGather", "HcclReduceScatter", "HcclBroadcast", "HcclAlltoAll", "a message"};
      return concat(names[static_cast<int>(what)], " of ", elements, " elements of type ", type, ", operation ", operation, ", root ", root);
    }
  };
  struct communicator;
  /// What all ranks of a communicator share.
  struct clique {
    std::vector<communicator*> members{};
    std::size_t joined = 0;
    std::vector<std::shared_ptr<meeting>> collectives{};
    struct messages {
      std::vector<std::shared_ptr<meeting>> all{};
      std::size_t ends[2] = {0, 0};  // sent, received
    };
    std::map<std::pair<int, int>, messages> between{};  // sender, receiver
  };
  struct communicator {
    std::shared_ptr<clique> all{};
    int rank = 0, device = 0, state = hccl_status::success;
    bool is_destroyed = false;
    std::size_t made = 0, busy = 0;
  };
  struct call {
    meeting what{};
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t reads = 0, writes = 0;  // bytes
    int peer = -1;
    bool is_send = false;
  };

  static fake_hccl*& self() {
    static fake_hccl* one = nullptr;
    return one;
  }
  static std::size_t bytes_of(int type) {
    switch (type) {
      case hccl_type::fp64: return 8;
      case hccl_type::fp32:
      case hccl_type::int32: return 4;
      case hccl_type::fp16:
      case hccl_type::bf16: return 2;
      default: return 0;
    }
  }
  int violation(int status, const std::string& what) {
    violations_ += concat(what, " (", status, ")\n");
    fake_ascend::set_message(concat("EI0001: ", what));
    return status;
  }
  template <class F>
  static int enter(const char* name, F&& f, bool always = false) {
    fake_hccl& all = *self();
    return all.cards_.locked([&] {
      ++all.counts_[name];
      const bool fails = ++all.calls_ == all.failing_call_;
      if (fails) fake_ascend::set_message(concat("EI9999: ", name, " was made to fail"));
      if (fails && !always) return all.call_status_;
      const int done = f(all);
      return fails ? all.call_status_ : done;
    });
  }
  int init(std::uint32_t ranks, const hccl_root_info* info, std::uint32_t rank, void** made) {
    const int device = fake_ascend::current_device();
    std::shared_ptr<communicator> fresh;
    const int status = enter("HcclCommInitRootInfo", [&](fake_hccl& all) {
      if (info == nullptr || made == nullptr) return all.violation(hccl_status::null_pointer, "HcclCommInitRootInfo with a null address");
      const auto found = all.cliques_.find(std::string(info->bytes, sizeof info->bytes));
      if (found == all.cliques_.end() || rank >= ranks || device < 0)
        return all.violation(hccl_status::parameter, concat("HcclCommInitRootInfo: rank ", rank, " of ", ranks, " on device ", device));
      const std::shared_ptr<clique>& with = found->second;
      if (with->members.empty()) with->members.resize(ranks);
      if (with->members.size() != ranks || with->members[rank] != nullptr)
        return all.violation(hccl_status::parameter,
                             concat("HcclCommInitRootInfo: rank ", rank, " of ", ranks, " is there already, or others say another number"));
      for (const communicator* const other : with->members)
        if (other != nullptr && other->device == device)
          return all.violation(hccl_status::parameter, concat("HcclCommInitRootInfo: ranks ", other->rank, " and ", rank, " both on device ", device));
      fresh = std::make_shared<communicator>();
      fresh->all = with;
      fresh->rank = static_cast<int>(rank);
      fresh->device = device;
      with->members[rank] = fresh.get();
      *made = fresh.get();
      all.live_[*made] = fresh;
      ++with->joined;
      all.cards_.notify();
      return hccl_status::success;
    });
    if (status != hccl_status::success) return status;
    if (cards_.wait_until([&] { return fresh->all->joined == ranks; }, connect_timeout_)) return hccl_status::success;
    return enter("a wait for ranks", [&](fake_hccl& all) {
      all.remove(*fresh);
      fake_ascend::set_message("EI0006: not all ranks connected in time");
      return hccl_status::timeout;
    });
  }

  /// Ranks that wait for what will not come.
  static void fail_all(clique& all, int status) {
    for (communicator* const one : all.members)
      if (one != nullptr) one->state = status;
  }
  static int queue(const char* name, void* handle, void* stream, std::vector<call> calls) {
    return enter(name, [&](fake_hccl& all) {
      const auto found = all.live_.find(handle);
      if (found == all.live_.end()) return all.violation(hccl_status::parameter, concat(name, ": there is no such communicator"));
      const std::shared_ptr<communicator> of = found->second;
      const auto bad = [&](int status, const std::string& why) { return all.violation(status, concat(name, ", rank ", of->rank, ": ", why)); };
      if (of->state != hccl_status::success) return of->state;
      if (fake_ascend::current_device() != of->device)
        return bad(hccl_status::parameter, concat("the communicator is of device ", of->device, ", the thread's device is ", fake_ascend::current_device()));
      const auto ranks = static_cast<int>(of->all->members.size());
      std::set<std::pair<int, bool>> peers;
      for (const call& one : calls) {
        const bool sums = one.what.what == kind::all_reduce || one.what.what == kind::reduce_scatter;
        if (bytes_of(one.what.type) == 0) return bad(hccl_status::parameter, concat("there is no type ", one.what.type));
        if (sums && one.what.type == hccl_type::fp64) return bad(hccl_status::not_supported, "reductions of fp64");
        if (sums && one.what.type == hccl_type::bf16 && xtrain::detail::generation_of(all.cards_.settings().soc) == npu_generation::first)
          return bad(hccl_status::not_supported, "reductions of bf16 on the first generation");
        if (one.what.elements == 0) return bad(hccl_status::parameter, "no elements");
        if (one.what.root < 0 || one.what.root >= ranks || one.peer >= ranks) return bad(hccl_status::parameter, "there is no such rank");
        if (one.what.what == kind::message && one.peer == of->rank) return bad(hccl_status::parameter, "a message to itself");
        if (one.what.what == kind::message && !peers.emplace(one.peer, one.is_send).second)
          return bad(hccl_status::parameter, concat("two messages with rank ", one.peer, " in one batch"));
        if (one.what.what == kind::all_to_all && one.from == one.to) return bad(hccl_status::parameter, "what is sent is what is received");
        const std::size_t align = bytes_of(one.what.type);
        for (const void* const at : {one.from, static_cast<const void*>(one.to)})
          if (reinterpret_cast<std::uintptr_t>(at) % align != 0) return bad(hccl_status::parameter, "an address is not aligned to its elements");
        if (const std::string why = all.cards_.problem_of(one.from, one.reads, of->device, "a read"); !why.empty()) return bad(hccl_status::parameter, why);
        if (const std::string why = all.cards_.problem_of(one.to, one.writes, of->device, "a write"); !why.empty()) return bad(hccl_status::parameter, why);
      }
      return all.queue_together(name, of, stream, calls);
    });
  }
  /// Calls that are made together.
  int queue_together(const char* name, const std::shared_ptr<communicator>& of, void* stream, const std::vector<call>& calls) {
    std::vector<std::pair<std::shared_ptr<meeting>, std::size_t>> parts;
    clique& all = *of->all;
    for (const call& one : calls) {
      const bool is_message = one.what.what == kind::message;
      std::vector<std::shared_ptr<meeting>>* list = &all.collectives;
      std::size_t number = 0, place = static_cast<std::size_t>(of->rank);
      if (is_message) {
        place = one.is_send ? 0 : 1;
        auto& between = all.between[one.is_send ? std::pair{of->rank, one.peer} : std::pair{one.peer, of->rank}];
        list = &between.all;
        number = between.ends[place]++;
      } else {
        number = of->made++;
      }
      if (number == list->size()) {
        list->push_back(std::make_shared<meeting>(one.what));
        list->back()->ranks.resize(is_message ? 2 : all.members.size());
      }
      const std::shared_ptr<meeting>& all_meet = (*list)[number];
      if (!all_meet->is_same(one.what)) {
        fail_all(all, hccl_status::internal);
        return violation(hccl_status::internal, concat("ranks make different calls; call ", number + 1, " of rank ", of->rank,
                                                       is_message ? concat(" with rank ", one.peer) : "", " is ", one.what.text(), ", of another ",
                                                       all_meet->text()));
      }
      all_meet->ranks[place] = {true, false, stream, one.from, one.to};
      parts.emplace_back(all_meet, place);
    }
    ++of->busy;
    const int status = cards_.queue_outside_work(stream, name, [this, of, parts] { return go_on(*of, parts); });
    return status == npu_status::success ? hccl_status::success : hccl_status::runtime;
  }
  /// A queue has reached these calls of a rank. Other ranks' queues go on to theirs.
  bool go_on(communicator& of, const std::vector<std::pair<std::shared_ptr<meeting>, std::size_t>>& parts) {
    if (of.is_destroyed) return true;
    bool is_done = true;
    for (const auto& [one, place] : parts) {
      if (!std::exchange(one->ranks[place].has_arrived, true)) cards_.notify();
      if (!one->is_done && std::all_of(one->ranks.begin(), one->ranks.end(), [](const auto& rank) { return rank.has_arrived; })) {
        one->is_done = true;
        cards_.with_memory([&all = *one] { meet(all); });
        cards_.notify();
      }
      if (one->is_done) continue;
      is_done = false;
      for (const auto& rank : one->ranks)
        if (rank.is_queued && !rank.has_arrived) cards_.go_on(rank.queue);
    }
    if (is_done) --of.busy;
    return is_done;
  }

  /// All ranks are there: their memory is read, then written.
  static void meet(meeting& all) {
    const std::size_t bytes = all.elements * bytes_of(all.type), ranks = all.ranks.size();
    if (all.what == kind::message) return void(std::memmove(all.ranks[1].to, all.ranks[0].from, bytes));
    if (all.what == kind::broadcast) {
      for (const auto& rank : all.ranks) std::memmove(rank.to, all.ranks[static_cast<std::size_t>(all.root)].from, bytes);
      return;
    }
    if (all.what == kind::all_to_all) {
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t from = 0; from < ranks; ++from)
          std::memcpy(static_cast<std::byte*>(all.ranks[r].to) + from * (bytes / ranks),
                      static_cast<const std::byte*>(all.ranks[from].from) + r * (bytes / ranks), bytes / ranks);
      return;
    }
    std::vector<std::byte> whole(bytes);  // elements: of the whole array
    if (all.what == kind::all_gather) {
      for (std::size_t r = 0; r < ranks; ++r) std::memcpy(whole.data() + r * (bytes / ranks), all.ranks[r].from, bytes / ranks);
    } else {
      switch (all.type) {
        case hccl_type::fp32: reduce<float>(all, whole); break;
        case hccl_type::fp16: reduce<fp16>(all, whole); break;
        case hccl_type::bf16: reduce<bf16>(all, whole); break;
        default: reduce<std::int32_t>(all, whole);
      }
    }
    const bool in_parts = all.what == kind::reduce_scatter;
    const std::size_t each = in_parts ? bytes / ranks : bytes;
    for (std::size_t r = 0; r < ranks; ++r) std::memcpy(all.ranks[r].to, whole.data() + (in_parts ? r * each : 0), each);
  }
  template <class T>
  static void reduce(const meeting& all, std::vector<std::byte>& whole) {
    const std::size_t ranks = all.ranks.size();
    for (std::size_t i = 0; i < all.elements; ++i) {
      const auto value = [&](std::size_t rank) {
        T one;
        std::memcpy(&one, static_cast<const std::byte*>(all.ranks[rank % ranks].from) + i * sizeof(T), sizeof(T));
        return one;
      };
      const std::size_t first = i * ranks / all.elements;  // of the ring's chunk
      T sum = value(first);
      for (std::size_t k = 1; k < ranks; ++k) {
        const T next = value(first + k);
        sum = all.operation == hccl_operation::sum ? static_cast<T>(sum + next) : std::max(sum, next);
      }
      std::memcpy(whole.data() + i * sizeof(T), &sum, sizeof(T));
    }
  }

  [[nodiscard]] static std::size_t ranks_of(void* handle) {
    fake_hccl& all = *self();
    return all.cards_.locked([&] {
      const auto found = all.live_.find(handle);
      return found == all.live_.end() ? std::size_t{1} : found->second->all->members.size();
    });
  }
  [[nodiscard]] static hccl_library make_table() {
    hccl_library t;
    t.served_by = "fake_hccl";
    t.get_root_info = [](hccl_root_info* info) {
      return enter("HcclGetRootInfo", [&](fake_hccl& all) {
        const std::string text = concat("communicator ", all.cliques_.size());
        std::memcpy(info->bytes, text.data(), text.size());
        all.cliques_[std::string(info->bytes, sizeof info->bytes)] = std::make_shared<clique>();
        return hccl_status::success;
      });
    };
    t.comm_init = [](std::uint32_t ranks, const hccl_root_info* info, std::uint32_t rank, void** made) { return self()->init(ranks, info, rank, made); };
    t.comm_destroy = [](void* handle) {
      return enter(
          "HcclCommDestroy",
          [&](fake_hccl& all) {
            const auto found = all.live_.find(handle);
            if (found == all.live_.end()) return all.violation(hccl_status::parameter, "HcclCommDestroy: there is no such communicator");
            all.remove(*std::shared_ptr<communicator>(found->second));
            return hccl_status::success;
          },
          true);
    };
    t.comm_async_error = [](void* handle, std::int32_t* status) {  // does not count
      fake_hccl& all = *self();
      return all.cards_.locked([&] {
        const auto found = all.live_.find(handle);
        if (found == all.live_.end()) return all.violation(hccl_status::parameter, "HcclGetCommAsyncError: there is no such communicator");
        *status = found->second->state;
        return hccl_status::success;
      });
    };
    t.error_string = nullptr;
    t.all_reduce = [](void* from, void* to, std::uint64_t n, std::int32_t type, std::int32_t operation, void* comm, void* stream) {
      const std::size_t bytes = n * bytes_of(type);
      return queue("HcclAllReduce", comm, stream,
                   {{.what = {kind::all_reduce, n, type, operation}, .from = from, .to = to, .reads = bytes, .writes = bytes}});
    };
    t.all_gather = [](void* from, void* to, std::uint64_t part, std::int32_t type, void* comm, void* stream) {
      const std::size_t n = part * ranks_of(comm), bytes = part * bytes_of(type);
      return queue("HcclAllGather", comm, stream,
                   {{.what = {kind::all_gather, n, type}, .from = from, .to = to, .reads = bytes, .writes = n * bytes_of(type)}});
    };
    t.reduce_scatter = [](void* from, void* to, std::uint64_t part, std::int32_t type, std::int32_t operation, void* comm, void* stream) {
      const std::size_t n = part * ranks_of(comm), bytes = part * bytes_of(type);
      return queue("HcclReduceScatter", comm, stream,
                   {{.what = {kind::reduce_scatter, n, type, operation}, .from = from, .to = to, .reads = n * bytes_of(type), .writes = bytes}});
    };
    t.broadcast = [](void* data, std::uint64_t n, std::int32_t type, std::uint32_t root, void* comm, void* stream) {
      const std::size_t bytes = n * bytes_of(type);
      return queue("HcclBroadcast", comm, stream,
                   {{.what = {kind::broadcast, n, type, 0, static_cast<int>(root)}, .from = data, .to = data, .reads = bytes, .writes = bytes}});
    };
    t.send = [](void* from, std::uint64_t n, std::int32_t type, std::uint32_t rank, void* comm, void* stream) {
      return queue("HcclSend", comm, stream,
                   {{.what = {kind::message, n, type}, .from = from, .reads = n * bytes_of(type), .peer = static_cast<int>(rank), .is_send = true}});
    };
    t.receive = [](void* to, std::uint64_t n, std::int32_t type, std::uint32_t rank, void* comm, void* stream) {
      return queue("HcclRecv", comm, stream, {{.what = {kind::message, n, type}, .to = to, .writes = n * bytes_of(type), .peer = static_cast<int>(rank)}});
    };
    t.all_to_all = [](const void* from, std::uint64_t sent, std::int32_t type, const void* to, std::uint64_t received, std::int32_t type_received, void* comm,
                      void* stream) {
      const std::size_t n = sent * ranks_of(comm), bytes = n * bytes_of(type);
      if (sent != received || type != type_received)
        return enter("HcclAlltoAll", [&](fake_hccl& all) {
          return all.violation(hccl_status::parameter, "HcclAlltoAll: what is sent differs from what is received");
        });
      return queue("HcclAlltoAll", comm, stream,
                   {{.what = {kind::all_to_all, n, type}, .from = from, .to = const_cast<void*>(to), .reads = bytes, .writes = bytes}});
    };
    t.batch = [](hccl_message* messages, std::uint32_t count, void* comm, void* stream) {
      std::vector<call> calls;
      for (std::uint32_t i = 0; i < count; ++i) {
        const hccl_message& one = messages[i];
        const bool is_send = one.kind == 0;
        const std::size_t bytes = one.elements * bytes_of(one.type);
        calls.push_back({.what = {kind::message, one.elements, one.type},
                         .from = is_send ? one.data : nullptr,
                         .to = is_send ? nullptr : one.data,
                         .reads = is_send ? bytes : 0,
                         .writes = is_send ? 0 : bytes,
                         .peer = static_cast<int>(one.rank),
                         .is_send = is_send});
      }
      return queue("HcclBatchSendRecv", comm, stream, std::move(calls));
    };
    return t;
  }
  void remove(communicator& one) {
    one.is_destroyed = true;
    one.all->members[static_cast<std::size_t>(one.rank)] = nullptr;
    live_.erase(static_cast<void*>(&one));
  }

  fake_ascend& cards_;
  std::chrono::milliseconds connect_timeout_;
  hccl_library table_ = make_table();
  std::map<std::string, std::shared_ptr<clique>> cliques_{};
  std::map<void*, std::shared_ptr<communicator>> live_{};
  std::map<std::string, std::size_t> counts_{};
  std::string violations_{};
  std::size_t calls_ = 0, failing_call_ = 0;
  int call_status_ = 0;
};

}  // namespace xtrain::testing
