// Draws runs of the program's strategy, trains each on ranks and on one device, and reports the differences.
//
//   equality.<name> [runs] [seed] [mpi]
//
// mpi: ranks are mpirun's processes; otherwise 2 to 8 threads. Prints a line per run, and a summary.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/threads.hpp>
#ifdef EQUALITY_MPI
#include <xtrain/mpi.hpp>
#endif
#include "draw.hpp"

namespace equality {

namespace {

/// The differences between a run on ranks and one device.
struct apart {
  double losses = 0, norms = 0, weights = 0;  // the maximum over all steps; the distance of all weights
  bound within{};
  bool exact = false, agreed = true;

  [[nodiscard]] bool equal() const { return losses == 0 && weights == 0; }
  [[nodiscard]] bool holds() const {
    if (exact && !equal()) return false;
    return agreed && weights <= within.weights && losses <= within.losses && norms <= within.norms;
  }
};

/// NaN counts as an infinite difference.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::abs(a[i] - b[i]) <= most ? most : std::abs(a[i] - b[i]);
  return std::isnan(most) ? INFINITY : most;
}
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return INFINITY;
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::isnan(squares) ? INFINITY : std::sqrt(squares);
}

/// All ranks have the same values, bit for bit.
bool same_everywhere(const std::shared_ptr<transport>& network, const outcome& mine) {
  std::vector<double> numbers = mine.losses;
  numbers.insert(numbers.end(), mine.norms.begin(), mine.norms.end());
  numbers.push_back(mine.held_out);
  std::vector<double> all(numbers.size() * network->size());
  group(network, 1001).all_gather(std::span<const double>(numbers), std::span<double>(all));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != numbers[i % numbers.size()]) return false;
  return true;
}

std::string text_of(const drawn_run& run) {
  const drawn_mesh& m = run.mesh;
  std::string text = concat(name_of(run.what), "; ", m.ranks, " ranks: data ", m.data);
  const auto say = [&](const char* what, std::size_t n) {
    if (n > 1) text += concat(", ", what, " ", n);
  };
  say("tensor", m.tensor);
  say("context", m.context);
  say("expert", m.expert);
  say("shards", m.shards);
  if (m.depth > 1 || m.chunks > 1) text += concat(", stages ", m.depth, " x ", m.chunks, " ", schedules[m.schedule].name);
  if (!m.rows.empty()) text += ", uneven";
  text += concat("; layers ", run.shape.num_layers, ", kv ", run.shape.num_kv_heads, ", batch ", run.settings.micro_batch_size, " x ",
                 run.settings.gradient_accumulation_steps);
  if (run.shape.residual_dropout > 0) text += ", dropout";
  if (run.adapter.dropout > 0) text += ", adapter dropout";
  if (run.shape.balances_experts) text += ", balanced";
  if (run.settings.max_grad_norm > 0) text += ", clipped";
  return text + (run.layout == sequence_layout::packed ? ", packed" : "");
}

/// Called on every rank; the first rank has the result.
apart compare(const combination& of, const drawn_run& run, const std::shared_ptr<transport>& network) {
  const outcome mine = of.train(run, network);
  apart found;
  found.exact = is_exact(run);
  found.agreed = same_everywhere(network, mine);
  if (network->rank() != 0) return found;
  const outcome one = train_alone(run);
  found.within = bound_of(run, one);
  found.losses = std::max(largest_difference(one.losses, mine.losses), largest_difference({one.held_out}, {mine.held_out}));
  found.norms = largest_difference(one.norms, mine.norms);
  found.weights = distance(one.weights, mine.weights);
  return found;
}

/// All runs of a program, as a row of the results table.
class summary {
 public:
  explicit summary(const combination& of) : of_(of) {}

  void add(const drawn_run& run, const apart& found) {
    ++runs_;
    exact_ += found.exact;
    equal_ += found.equal();
    failed_ += !found.holds();
    losses_ = std::max(losses_, found.losses);
    weights_ = std::max(weights_, found.weights);
    share_ = std::max({share_, found.weights / found.within.weights, found.losses / found.within.losses, found.norms / found.within.norms});
    std::printf("%s %s\n     losses %.1e of %.1e, norms %.1e of %.1e, weights %.1e of %.1e%s%s\n", found.holds() ? "ok  " : "FAIL",
                text_of(run).c_str(), found.losses, found.within.losses, found.norms, found.within.norms, found.weights,
                found.within.weights,
                found.exact     ? ", must be equal"
                : found.equal() ? ", equal"
                                : "",
                found.agreed ? "" : ", RANKS DISAGREE");
    std::fflush(stdout);
  }
  void refuse(const drawn_run& run, const char* why) {
    ++runs_;
    ++failed_;
    std::printf("FAIL %s\n     %s\n", text_of(run).c_str(), why);
    std::fflush(stdout);
  }
  [[nodiscard]] int end(const char* transport) const {
    std::printf("| %s | %s | %zu | %.1e | %.1e | %.3f | %zu (%zu must) | %zu |\n", std::string(of_.name).c_str(), transport, runs_, losses_, weights_, share_,
                equal_, exact_, failed_);
    return failed_ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  }

 private:
  combination of_;
  std::size_t runs_ = 0, exact_ = 0, equal_ = 0, failed_ = 0;
  double losses_ = 0, weights_ = 0, share_ = 0;
};

int on_threads(const combination& of, std::size_t runs, std::uint64_t seed) {
  summary all(of);
  const std::vector<std::size_t> sizes = {8, 4, 2, 6, 3};
  for (std::size_t i = 0; i < runs; ++i) {
    // three kinds of model in turn, and five sizes
    const drawn_run run = draw_run(seed, i, of, sizes[i % sizes.size()]);
    try {
      apart found;
      bool agreed = true;
      std::mutex mutex;
      run_ranks(run.mesh.ranks, [&](const std::shared_ptr<transport>& network) {
        const apart mine = compare(of, run, network);
        const std::lock_guard lock(mutex);
        agreed = agreed && mine.agreed;
        if (network->rank() == 0) found = mine;
      });
      found.agreed = agreed;
      all.add(run, found);
    } catch (const std::exception& problem) {
      all.refuse(run, problem.what());
    }
  }
  return all.end("threads");
}

#ifdef EQUALITY_MPI
int on_processes(const combination& of, std::size_t runs, std::uint64_t seed) {
  int status = EXIT_SUCCESS;
  mpi_session session({.timeout = std::chrono::seconds(300)});
  session.run([&](const std::shared_ptr<transport>& network) {
    summary all(of);
    for (std::size_t i = 0; i < runs; ++i) {
      const drawn_run run = draw_run(seed, i, of, network->size());
      const apart found = compare(of, run, network);
      if (network->rank() == 0) all.add(run, found);
      group(network, 1002).barrier();
    }
    if (network->rank() == 0) status = all.end(concat("mpi, ", network->size()).c_str());
  });
  return status;
}
#endif

}  // namespace

}  // namespace equality

int main(int argc, char** argv) {
  const std::size_t runs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 5;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const equality::combination of = equality::this_combination();
#ifdef EQUALITY_MPI
  if (argc > 3 && std::string(argv[3]) == "mpi") return equality::on_processes(of, runs, seed);
#endif
  return equality::on_threads(of, runs, seed);
}
