// NCCL without GPUs: ranks are threads of one process, each with a GPU of testing/fake_cuda.hpp. It checks callers against NCCL's documentation, reports
// differing calls where NCCL would hang, rounds sums at every hop of a ring as NCCL does, and fails on request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/comm/nccl/library.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/testing/fake_cuda.hpp>

namespace xtrain::testing {

/// One instance at a time. A communicator's entries do not block: they return in_progress, and are done when the caller asks.
class fake_nccl {
 public:
  explicit fake_nccl(fake_cuda& gpus, int version = 22809) : gpus_(gpus), version_(version) { self() = this; }
  ~fake_nccl() { self() = nullptr; }
  fake_nccl(const fake_nccl&) = delete;
  fake_nccl& operator=(const fake_nccl&) = delete;

  [[nodiscard]] const nccl_library& library() const { return table_; }

  /// The n-th call from now, counted from 1, returns this status, without effect unless it destroys.
  void fail_call(std::size_t n, int status) {
    gpus_.locked([&] {
      calls_ = 0;
      failing_call_ = n;
      call_status_ = status;
    });
  }
  /// Since fail_call. Queries do not count: they come at any time.
  [[nodiscard]] std::size_t calls() const {
    return gpus_.locked([&] { return calls_; });
  }
  [[nodiscard]] std::size_t calls_of(const std::string& name) const {
    return gpus_.locked([&] {
      const auto found = counts_.find(name);
      return found == counts_.end() ? std::size_t{0} : found->second;
    });
  }
  /// From now on, communicators of this rank report failure.
  void fail_rank(int rank, int status) {
    gpus_.locked([&] {
      for (const auto& [handle, one] : live_)
        if (one->rank == rank) one->state = status;
    });
  }
  [[nodiscard]] std::string violations() const {
    return gpus_.locked([&] { return violations_; });
  }
  /// Objects that were not destroyed; empty: no leaks.
  [[nodiscard]] std::string leaks() const {
    return gpus_.locked([&] { return live_.empty() ? std::string() : concat(live_.size(), " communicators"); });
  }

 private:
  enum class kind { all_reduce, all_gather, reduce_scatter, broadcast, message };
  /// A collective of all ranks, or a message between two.
  struct meeting {
    kind what{};
    std::size_t elements = 0;
    int type = 0, operation = 0, root = 0;
    struct participant {
      bool is_queued = false, has_arrived = false;
      cuda_queue_handle queue = nullptr;
      const void* from = nullptr;
      void* to = nullptr;
    };
    std::vector<participant> ranks{};  // of a message: sender, receiver
    bool is_done = false;
    [[nodiscard]] bool is_same(const meeting& other) const {
      return what == other.what && elements == other.elements && type == other.type && operation == other.operation && root == other.root;
    }
    [[nodiscard]] std::string text() const {
      static constexpr const char* names[] = {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "a message"};
      return concat(names[static_cast<int>(what)], " of ", elements, " elements of type ", type, ", operation ", operation, ", root ", root);
    }
  };
  struct communicator;
  /// Shared by all ranks of a communicator.
  struct clique {
    std::vector<communicator*> members{};
    std::size_t joined = 0, finalized = 0;
    std::vector<std::shared_ptr<meeting>> collectives{};
    struct messages {
      std::vector<std::shared_ptr<meeting>> all{};
      std::size_t ends[2] = {0, 0};  // sent, received
    };
    std::map<std::pair<int, int>, messages> between{};  // sender, receiver
  };
  struct communicator {
    std::shared_ptr<clique> all{};
    int rank = 0, device = 0, state = nccl_status::in_progress;
    bool is_finalized = false, is_aborted = false;
    std::size_t made = 0;
    std::string last_error{};
  };
  struct call {
    std::shared_ptr<communicator> of{};
    cuda_queue_handle stream = nullptr;
    meeting what{};
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t reads = 0, writes = 0;
    int peer = -1;
    bool is_send = false;
  };
  struct open_group {
    int depth = 0;
    std::vector<call> calls{};
  };

  static fake_nccl*& self() {
    static fake_nccl* one = nullptr;
    return one;
  }
  static open_group& group() {
    static thread_local open_group one;
    return one;
  }
  static std::size_t bytes_of(int type) {
    switch (type) {
      case nccl_type::fp64: return 8;
      case nccl_type::fp32:
      case nccl_type::int32: return 4;
      case nccl_type::fp16:
      case nccl_type::bf16: return 2;
      default: return 0;
    }
  }
  int violation(int status, const std::string& what) {
    violations_ += concat(what, "\n");
    return status;
  }
  template <class F>
  static int enter(const char* name, F&& f, bool always = false) {
    fake_nccl& all = *self();
    return all.gpus_.locked([&] {
      ++all.counts_[name];
      const bool fails = ++all.calls_ == all.failing_call_;
      if (fails && !always) return all.call_status_;
      const int done = f(all);
      return fails ? all.call_status_ : done;
    });
  }
  /// f(fake, communicator) for a live, connected communicator.
  template <class F>
  static int enter_of(const char* name, nccl_handle handle, F&& f, bool always = false) {
    return enter(
        name,
        [&](fake_nccl& all) {
          const auto found = all.live_.find(handle);
          if (found == all.live_.end()) return all.violation(nccl_status::invalid_argument, concat(name, ": there is no such communicator"));
          return f(all, found->second);
        },
        always);
  }
  [[nodiscard]] static nccl_handle handle_of(communicator& one) { return reinterpret_cast<nccl_handle>(&one); }

  int join(nccl_handle* made, int ranks, const nccl_unique_id& id, int rank, const nccl_config& config, int device) {
    if (config.mark != 0xcafebeef || config.bytes < sizeof(nccl_config) || config.blocking != 0)
      return violation(nccl_status::invalid_argument, "ncclCommInitRankConfig: the configuration is not one");
    auto& all = cliques_[std::string(id.bytes, sizeof id.bytes)];
    if (!all) return violation(nccl_status::invalid_argument, "ncclCommInitRankConfig: the id is not of ncclGetUniqueId");
    if (all->members.empty()) all->members.resize(static_cast<std::size_t>(ranks));
    if (rank < 0 || rank >= ranks || all->members.size() != static_cast<std::size_t>(ranks) || all->members[static_cast<std::size_t>(rank)] != nullptr)
      return violation(nccl_status::invalid_argument, concat("ncclCommInitRankConfig: rank ", rank, " of ", ranks));
    const auto fresh = std::make_shared<communicator>();
    *fresh = {.all = all, .rank = rank, .device = device};
    all->members[static_cast<std::size_t>(rank)] = fresh.get();
    *made = handle_of(*fresh);
    live_[*made] = fresh;
    if (++all->joined < all->members.size()) return nccl_status::in_progress;
    for (communicator* const one : all->members) one->state = nccl_status::success;
    for (communicator* const one : all->members)
      for (communicator* const other : all->members)
        if (one != other && one->device == other->device) {
          one->state = nccl_status::invalid_usage;
          one->last_error = concat("Duplicate GPU detected : rank ", one->rank, " and rank ", other->rank, " both on CUDA device ", one->device);
        }
    return nccl_status::in_progress;
  }

  /// Fails ranks whose wait cannot end.
  static void fail_all(clique& all, int status, const std::string& why) {
    for (communicator* const one : all.members)
      if (one != nullptr && !one->is_aborted) {
        one->state = status;
        one->last_error = why;
      }
  }
  static int queue(const char* name, nccl_handle handle, call what) {
    return enter_of(name, handle, [&](fake_nccl& all, const std::shared_ptr<communicator>& of) {
      what.of = of;
      const auto bad = [&](const std::string& why) { return all.violation(nccl_status::invalid_argument, concat(name, ", rank ", of->rank, ": ", why)); };
      if (of->state != nccl_status::success) return bad("the communicator is not ready");
      if (of->is_finalized) return bad("the communicator is finalized");
      const auto ranks = static_cast<int>(of->all->members.size());
      if (bytes_of(what.what.type) == 0) return bad(concat("there is no type ", what.what.type));
      if (what.what.root < 0 || what.what.root >= ranks || what.peer >= ranks) return bad("there is no such rank");
      if (what.what.what == kind::message && group().depth == 0 && what.peer == of->rank) return bad("a message to itself outside a group");
      if (const std::string why = all.gpus_.problem_of(what.from, what.reads, of->device, "a read"); !why.empty()) return bad(why);
      if (const std::string why = all.gpus_.problem_of(what.to, what.writes, of->device, "a write"); !why.empty()) return bad(why);
      if (group().depth > 0) {
        group().calls.push_back(std::move(what));
        return nccl_status::success;
      }
      const call one[] = {std::move(what)};
      return all.queue_together(one);
    });
  }
  template <class Calls>
  int queue_together(const Calls& calls) {
    std::map<std::pair<communicator*, cuda_queue_handle>, std::vector<std::pair<std::shared_ptr<meeting>, std::size_t>>> by_queue;
    std::map<communicator*, std::shared_ptr<communicator>> owners;
    int result = nccl_status::success;
    for (const call& one : calls) {
      clique& all = *one.of->all;
      const bool is_message = one.what.what == kind::message;
      std::vector<std::shared_ptr<meeting>>* list = &all.collectives;
      std::size_t number = 0, place = static_cast<std::size_t>(one.of->rank);
      if (is_message) {
        place = one.is_send ? 0 : 1;
        auto& between = all.between[one.is_send ? std::pair{one.of->rank, one.peer} : std::pair{one.peer, one.of->rank}];
        list = &between.all;
        number = between.ends[place]++;
      } else {
        number = one.of->made++;
      }
      if (number == list->size()) {
        list->push_back(std::make_shared<meeting>(one.what));
        list->back()->ranks.resize(is_message ? 2 : all.members.size());
      }
      const std::shared_ptr<meeting>& all_meet = (*list)[number];
      if (!all_meet->is_same(one.what)) {
        const std::string why = concat("ranks make different calls; call ", number + 1, " of rank ", one.of->rank,
                                       is_message ? concat(" with rank ", one.peer) : "",
                                       " is ", one.what.text(), ", of another ", all_meet->text());
        fail_all(all, nccl_status::invalid_usage, why);
        return violation(nccl_status::invalid_usage, why);
      }
      all_meet->ranks[place] = {true, false, one.stream, one.from, one.to};
      owners[one.of.get()] = one.of;
      by_queue[{one.of.get(), one.stream}].emplace_back(all_meet, place);
    }
    for (auto& [where, parts] : by_queue) {
      const std::string why = gpus_.queue_outside_work(
          where.second, where.first->device, [this, of = owners[where.first], parts = parts] { return go_on(*of, parts); });
      if (!why.empty()) result = violation(nccl_status::invalid_argument, why);
      where.first->state = nccl_status::in_progress;  // until the caller asks
    }
    return result == nccl_status::success && !by_queue.empty() ? nccl_status::in_progress : result;
  }
  /// A queue has reached a rank's calls. Advances other ranks' queues.
  bool go_on(const communicator& of, const std::vector<std::pair<std::shared_ptr<meeting>, std::size_t>>& parts) {
    if (of.is_aborted) return true;
    for (const auto& [one, place] : parts) {
      one->ranks[place].has_arrived = true;
      if (!one->is_done && std::all_of(one->ranks.begin(), one->ranks.end(), [](const auto& rank) { return rank.has_arrived; })) {
        one->is_done = true;
        meet(*one);
      }
    }
    for (;;) {
      bool is_done = true, has_moved = false;
      for (const auto& [one, place] : parts) {
        if (one->is_done) continue;
        is_done = false;
        for (const auto& rank : one->ranks)
          if (rank.is_queued && !rank.has_arrived) has_moved = gpus_.go_on(rank.queue) || has_moved;
      }
      if (is_done) return true;
      if (!has_moved) return false;
    }
  }

  /// All ranks have arrived: reads their memory, then writes it.
  static void meet(meeting& all) {
    const std::size_t bytes = all.elements * bytes_of(all.type), ranks = all.ranks.size();
    if (all.what == kind::message) return void(std::memmove(all.ranks[1].to, all.ranks[0].from, bytes));
    if (all.what == kind::broadcast) {
      for (const auto& rank : all.ranks) std::memmove(rank.to, all.ranks[static_cast<std::size_t>(all.root)].from, bytes);
      return;
    }
    std::vector<std::byte> whole(bytes);  // elements: of the whole array
    if (all.what == kind::all_gather) {
      for (std::size_t r = 0; r < ranks; ++r) std::memcpy(whole.data() + r * (bytes / ranks), all.ranks[r].from, bytes / ranks);
    } else {
      switch (all.type) {
        case nccl_type::fp64: reduce<double>(all, whole); break;
        case nccl_type::fp32: reduce<float>(all, whole); break;
        case nccl_type::fp16: reduce<fp16>(all, whole); break;
        case nccl_type::bf16: reduce<bf16>(all, whole); break;
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
        sum = all.operation == nccl_operation::sum ? static_cast<T>(sum + next) : std::max(sum, next);
      }
      std::memcpy(whole.data() + i * sizeof(T), &sum, sizeof(T));
    }
  }

  [[nodiscard]] static std::size_t ranks_of(nccl_handle handle) {
    fake_nccl& all = *self();
    return all.gpus_.locked([&] {
      const auto found = all.live_.find(handle);
      return found == all.live_.end() ? std::size_t{1} : found->second->all->members.size();
    });
  }
  [[nodiscard]] static nccl_library make_table() {
    nccl_library t;
    t.get_version = [](int* version) { return *version = self()->version_, nccl_status::success; };
    t.get_unique_id = [](nccl_unique_id* id) {
      return enter("ncclGetUniqueId", [&](fake_nccl& all) {
        const std::string text = concat("communicator ", all.cliques_.size());
        std::memcpy(id->bytes, text.data(), text.size());
        all.cliques_[std::string(id->bytes, sizeof id->bytes)] = std::make_shared<clique>();
        return nccl_status::success;
      });
    };
    t.comm_init_rank_config = [](nccl_handle* made, int ranks, nccl_unique_id id, int rank, nccl_config* config) {
      const int device = fake_cuda::current_device();
      return enter("ncclCommInitRankConfig", [&](fake_nccl& all) { return all.join(made, ranks, id, rank, *config, device); });
    };
    t.comm_get_async_error = [](nccl_handle handle, int* status) {
      fake_nccl& all = *self();
      return all.gpus_.locked([&] {
        const auto found = all.live_.find(handle);
        if (found == all.live_.end()) return all.violation(nccl_status::invalid_argument, "ncclCommGetAsyncError: there is no such communicator");
        communicator& one = *found->second;
        const bool waits = one.is_finalized ? one.all->finalized < one.all->members.size() : one.all->joined < one.all->members.size();
        *status = one.state;
        if (one.state == nccl_status::in_progress && !waits) *status = one.state = nccl_status::success;
        return nccl_status::success;
      });
    };
    t.comm_finalize = [](nccl_handle handle) {
      return enter_of("ncclCommFinalize", handle, [](fake_nccl& all, const std::shared_ptr<communicator>& one) {
        if (one->is_finalized) return all.violation(nccl_status::invalid_usage, "ncclCommFinalize: called twice");
        one->is_finalized = true;
        ++one->all->finalized;
        return one->state = nccl_status::in_progress;
      });
    };
    t.comm_destroy = [](nccl_handle handle) {
      return enter_of(
          "ncclCommDestroy", handle,
          [&](fake_nccl& all, const std::shared_ptr<communicator>& one) {
            if (!one->is_finalized || one->state != nccl_status::success) (void)all.violation(0, "ncclCommDestroy: the communicator is not finalized");
            all.remove(*one);
            return nccl_status::success;
          },
          true);
    };
    t.comm_abort = [](nccl_handle handle) {
      return enter_of(
          "ncclCommAbort", handle,
          [&](fake_nccl& all, const std::shared_ptr<communicator>& one) {
            one->is_aborted = true;
            all.remove(*one);
            return nccl_status::success;
          },
          true);
    };
    t.get_error_string = [](int status) {
      static constexpr const char* texts[] = {"no error",         "unhandled cuda error", "unhandled system error", "internal error",
                                              "invalid argument", "invalid usage",        "remote process exited or there was a network error",
                                              "NCCL operation in progress"};
      return texts[std::min(status, 7)];
    };
    t.get_last_error = [](nccl_handle handle) {
      static thread_local std::string text;
      fake_nccl& all = *self();
      all.gpus_.locked([&] {
        const auto found = all.live_.find(handle);
        text = found == all.live_.end() ? "" : found->second->last_error;
      });
      return text.c_str();
    };
    t.all_reduce = [](const void* from, void* to, std::size_t n, int type, int operation, nccl_handle comm, cuda_queue_handle stream) {
      const std::size_t bytes = n * bytes_of(type);
      return queue("ncclAllReduce", comm,
                   {.stream = stream, .what = {kind::all_reduce, n, type, operation}, .from = from, .to = to, .reads = bytes, .writes = bytes});
    };
    t.all_gather = [](const void* from, void* to, std::size_t part, int type, nccl_handle comm, cuda_queue_handle stream) {
      const std::size_t n = part * ranks_of(comm), bytes = part * bytes_of(type);
      return queue("ncclAllGather", comm,
                   {.stream = stream, .what = {kind::all_gather, n, type}, .from = from, .to = to, .reads = bytes, .writes = n * bytes_of(type)});
    };
    t.reduce_scatter = [](const void* from, void* to, std::size_t part, int type, int operation, nccl_handle comm, cuda_queue_handle stream) {
      const std::size_t n = part * ranks_of(comm), bytes = part * bytes_of(type);
      return queue("ncclReduceScatter", comm,
                   {.stream = stream,
                    .what = {kind::reduce_scatter, n, type, operation},
                    .from = from,
                    .to = to,
                    .reads = n * bytes_of(type),
                    .writes = bytes});
    };
    t.broadcast = [](const void* from, void* to, std::size_t n, int type, int root, nccl_handle comm, cuda_queue_handle stream) {
      const std::size_t bytes = n * bytes_of(type);
      return queue("ncclBroadcast", comm,
                   {.stream = stream, .what = {kind::broadcast, n, type, 0, root}, .from = from, .to = to, .reads = bytes, .writes = bytes});
    };
    t.send = [](const void* from, std::size_t n, int type, int rank, nccl_handle comm, cuda_queue_handle stream) {
      return queue("ncclSend", comm,
                   {.stream = stream, .what = {kind::message, n, type}, .from = from, .reads = n * bytes_of(type), .peer = rank, .is_send = true});
    };
    t.receive = [](void* to, std::size_t n, int type, int rank, nccl_handle comm, cuda_queue_handle stream) {
      return queue("ncclRecv", comm, {.stream = stream, .what = {kind::message, n, type}, .to = to, .writes = n * bytes_of(type), .peer = rank});
    };
    t.group_start = [] {
      return enter("ncclGroupStart", [](fake_nccl&) {
        ++group().depth;
        return nccl_status::success;
      });
    };
    t.group_end = [] {
      return enter(
          "ncclGroupEnd",
          [](fake_nccl& all) {
            if (group().depth == 0) return all.violation(nccl_status::invalid_usage, "ncclGroupEnd without ncclGroupStart");
            if (--group().depth > 0) return nccl_status::success;
            const std::vector<call> calls = std::exchange(group().calls, {});
            return all.calls_ == all.failing_call_ ? all.call_status_ : all.queue_together(calls);
          },
          true);
    };
    return t;
  }
  void remove(communicator& one) {
    one.all->members[static_cast<std::size_t>(one.rank)] = nullptr;
    live_.erase(handle_of(one));
  }

  fake_cuda& gpus_;
  int version_;
  nccl_library table_ = make_table();
  std::map<std::string, std::shared_ptr<clique>> cliques_{};
  std::map<nccl_handle, std::shared_ptr<communicator>> live_{};
  std::map<std::string, std::size_t> counts_{};
  std::string violations_{};
  std::size_t calls_ = 0, failing_call_ = 0;
  int call_status_ = 0;
};

}  // namespace xtrain::testing
