// Definitions of run_log.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/report/html.hpp>
#include <xtrain/report/run_log.hpp>

namespace xtrain {

namespace detail {

/// Members of a line's object. Nested values are only noticed: no document is built.
class event_line {
 public:
  using number_integer_t = json::number_integer_t;
  using number_unsigned_t = json::number_unsigned_t;
  using number_float_t = json::number_float_t;
  using string_t = json::string_t;
  using binary_t = json::binary_t;

  struct member {
    std::string key{};
    enum class kinds : std::uint8_t { number, text, null, other } kind = kinds::other;
    double number = 0;
    bool is_count = false;  // a non-negative integer, exact in `count`
    std::uint64_t count = 0;
    std::string text{};
  };

  /// Empty, or why the text is no object.
  std::string read(std::string_view text) {
    used_ = depth_ = 0;
    problem_.clear();
    if (text.find('\0') != std::string_view::npos) return "must be a JSON object; it has a zero byte";
    if (!json::sax_parse(text.begin(), text.end(), this)) return concat("must be a JSON object; ", printable(problem_, 160));
    return {};
  }

  [[nodiscard]] const member* find(std::string_view key) const {
    for (std::size_t i = 0; i < used_; ++i)
      if (members_[i].key == key) return &members_[i];
    return nullptr;
  }
  [[nodiscard]] std::size_t size() const { return used_; }
  [[nodiscard]] const member& operator[](std::size_t i) const { return members_[i]; }

  bool null() { return put(member::kinds::null, 0, false); }
  bool boolean(bool) { return put(member::kinds::other, 0, false); }
  bool number_integer(number_integer_t value) { return put(member::kinds::number, static_cast<double>(value), false); }
  bool number_unsigned(number_unsigned_t value) {
    if (!put(member::kinds::number, static_cast<double>(value), true)) return false;
    if (depth_ == 1) members_[used_ - 1].count = value;
    return true;
  }
  bool number_float(number_float_t value, const string_t&) { return put(member::kinds::number, value, false); }
  bool string(string_t& value) {
    if (!put(member::kinds::text, 0, false)) return false;
    if (depth_ == 1) members_[used_ - 1].text = value;
    return true;
  }
  bool binary(binary_t&) { return false; }
  bool start_object(std::size_t) {
    if (!put(member::kinds::other, 0, false)) return false;
    return open();
  }
  bool key(string_t& name) {
    if (depth_ != 1) return true;
    if (find(name) != nullptr) return stop(concat("key '", name, "' occurs twice"));
    key_ = name;
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t) {
    if (depth_ == 0) return stop("it is a list");
    if (!put(member::kinds::other, 0, false)) return false;
    return open();
  }
  bool end_array() { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& why) {
    problem_ = why.what();
    if (const std::size_t colon = problem_.find(": "); colon != std::string::npos) problem_.erase(0, colon + 2);
    return false;
  }

 private:
  bool put(member::kinds kind, double number, bool is_count) {
    if (depth_ == 0 && kind != member::kinds::other) return stop("it is a single value");
    if (depth_ != 1) return true;
    constexpr std::size_t most = 256;
    if (used_ == most) return stop(concat("it has more than ", most, " members"));
    if (used_ == members_.size()) members_.emplace_back();
    member& one = members_[used_++];
    one.key.swap(key_);
    one.kind = kind;
    one.number = number;
    one.is_count = is_count;
    one.text.clear();
    return true;
  }
  bool open() {
    if (++depth_ > static_cast<std::size_t>(max_json_depth)) return stop(concat("nested deeper than ", max_json_depth));
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }
  bool stop(std::string why) {
    problem_ = std::move(why);
    return false;
  }

  std::vector<member> members_{};  // of the longest line so far; the first used_ are this line's
  std::size_t used_ = 0, depth_ = 0;
  std::string key_{}, problem_{};
};

/// Thrown within the reader.
class unusable_line : public error {
  using error::error;
};

/// Reads lines from last to first.
class run_log_reader {
 public:
  explicit run_log_reader(const std::string& path) : file_(path) { log_.path = path; }

  run_log read() {
    const std::string_view text = file_.text();
    require<file_error>(!text.empty(), log_.path, ": must be the log of a run, an event per line; it is empty");
    log_.lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + (text.back() == '\n' ? 0 : 1);
    std::size_t line = log_.lines, end = text.back() == '\n' ? text.size() - 1 : text.size();
    for (;; --line) {
      const std::size_t before = end == 0 ? std::string_view::npos : text.rfind('\n', end - 1);
      const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
      const bool is_cut = line == log_.lines && text.back() != '\n';
      take(text.substr(begin, end - begin), line, is_cut);
      if (replaces_all_ || before == std::string_view::npos) break;
      end = before;
    }
    if (replaces_all_) log_.replaced += line - 1;
    if (events_ == 0) {
      const line_note first = log_.problems.empty() ? line_note{1, "no event"} : log_.problems.front();
      fail<file_error>(log_.path, ": must be the log of a run, an event per line; line ", first.line, ": ", first.text);
    }
    std::reverse(log_.parts.begin(), log_.parts.end());
    std::reverse(log_.skips.begin(), log_.skips.end());
    for (auto& [number, rank] : log_.ranks) {
      const auto times = static_cast<double>(rank.measurements);
      rank.seconds /= times;
      rank.waiting /= times;
      rank.tokens /= times;
    }
    return std::move(log_);
  }

 private:
  static constexpr std::size_t max_line = std::size_t{1} << 20;
  static constexpr std::size_t any_step = std::numeric_limits<std::size_t>::max();

  void note(std::size_t line, std::string what) {
    ++log_.problem_count;
    log_.problems.push_front({line, std::move(what)});
    if (log_.problems.size() > run_log::max_problems) log_.problems.pop_back();
  }

  void take(std::string_view line, std::size_t number, bool is_cut) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    line_ = number;
    if (line.size() > max_line) return note(number, concat("must be at most ", max_line, " bytes long; it has ", line.size()));
    std::string problem = event_.read(line);
    if (!problem.empty()) {
      // a killed run left half a line, which an earlier version continued
      const std::size_t next = line.rfind("{\"event\"");
      if (next != std::string_view::npos && next > 0 && event_.read(line.substr(next)).empty()) {
        line.remove_prefix(next);
        problem = concat("cut off before byte ", next + 1, "; what follows has been read");
      } else {
        return note(number, is_cut ? concat("cut off, as by the end of a killed run: ", problem) : problem);
      }
      note(number, std::move(problem));
    }
    try {
      take_event(line);
    } catch (const unusable_line& why) {
      note(number, why.what());
    }
  }

  // ---- members of the line ----

  using member = event_line::member;

  [[nodiscard]] const member& must_have(const char* key) const {
    const member* one = event_.find(key);
    require<unusable_line>(one != nullptr, "'", key, "' must be there");
    return *one;
  }
  [[noreturn]] static void refuse(const member& one, const char* must_be) {
    const bool is_text = one.kind == member::kinds::text, is_number = one.kind == member::kinds::number;
    fail<unusable_line>("'", printable(one.key, 80), "' must be ", must_be, "; given ",
                        is_text     ? concat("'", printable(one.text, 80), "'")
                        : is_number ? concat(one.number)
                        : one.kind == member::kinds::null ? std::string("null")
                                                          : std::string("something else"));
  }
  /// None: null or too large.
  [[nodiscard]] static std::optional<double> number(const member& one) {
    if (one.kind == member::kinds::null) return {};
    if (one.kind != member::kinds::number) refuse(one, "a number or null");
    if (!(std::abs(one.number) <= step_bins::max_value)) return {};
    return one.number;
  }
  /// Neither null nor negative; 0: missing.
  [[nodiscard]] double amount(const char* key) const {
    const member* one = event_.find(key);
    if (one == nullptr) return 0;
    const std::optional<double> value = number(*one);
    if (!value || *value < 0) refuse(*one, "non-negative");
    return *value;
  }
  [[nodiscard]] static std::size_t count(const member& one) {
    if (one.kind != member::kinds::number || !one.is_count || one.count > step_bins::max_step)
      refuse(one, "a whole number from 0 to 2^53");
    return static_cast<std::size_t>(one.count);
  }
  [[nodiscard]] std::size_t count_or_0(const char* key) const {
    const member* one = event_.find(key);
    return one == nullptr ? 0 : count(*one);
  }

  // ---- which of several lines of a step counts ----

  /// Later lines replaced this one (steps and skipped steps).
  bool is_replaced_step(std::size_t step) {
    if (step < lowest_step_ && step <= limit_) {
      lowest_step_ = step;
      return false;
    }
    if (step <= limit_) limit_ = lowest_step_ - 1;  // the run was resumed without a recorded beginning
    ++log_.replaced;
    return true;
  }
  /// For events after a step, before the next.
  bool is_replaced_beside(std::size_t step) {
    const bool is_replaced = step > limit_ || step > lowest_step_;
    if (is_replaced) ++log_.replaced;
    return is_replaced;
  }

  // ---- events ----

  void take_event(std::string_view line) {
    const member& event = must_have("event");
    if (event.kind != member::kinds::text) refuse(event, "the name of an event");
    if (event.text == "step") take_step();
    else if (event.text == "rank") take_rank();
    else if (event.text == "evaluation") take_evaluation();
    else if (event.text == "skipped") take_skipped();
    else if (event.text == "checkpoint") take_checkpoint();
    else if (event.text == "run") take_run(line);
    else if (event.text == "settings") take_settings(line);
    else if (event.text == "end") take_end(line);
    else {
      ++log_.unknown_events;
      return;
    }
    ++events_;
  }

  void take_step() {
    const std::size_t step = count(must_have("step"));
    require<unusable_line>(step > 0, "'step' must be positive");
    (void)must_have("loss");
    for (const char* key : {"loss", "lr", "grad_norm", "loss_scale", "mfu", "epoch"})  // a line counts entirely or not at all
      if (const member* one = event_.find(key)) (void)number(*one);
    const double seconds = amount("seconds"), tokens = amount("tokens"), rate = amount("tokens_per_second");
    const std::size_t peak = count_or_0("peak_memory");
    if (is_replaced_step(step)) return;
    for (std::size_t i = 0; i < event_.size(); ++i) {
      const member& one = event_[i];
      if (one.key == "event" || one.key == "step" || one.key == "epoch" || one.key == "tokens" || one.key == "peak_memory") continue;
      auto at = log_.curves.find(one.key);
      if (at == log_.curves.end()) {
        if (one.kind == member::kinds::text || one.kind == member::kinds::other) {
          if (!std::exchange(no_number_, true)) note(line_, concat("'", printable(one.key, 80), "' is no number and is left out, here and in other lines"));
          continue;
        }
        if (log_.curves.size() >= run_log::max_curves) {
          if (!std::exchange(too_many_, true)) note(line_, concat("must have at most ", run_log::max_curves, " different numbers; others are left out"));
          continue;
        }
        at = log_.curves.emplace(one.key, run_curve{}).first;
      }
      if (one.kind != member::kinds::number || !(std::abs(one.number) <= step_bins::max_value)) ++at->second.not_finite;
      else at->second.add(step, one.number);
    }
    log_.last_step = std::max(log_.last_step, step);
    log_.seconds += seconds;
    log_.tokens += tokens;
    if (rate > 0) log_.tokens_per_second.add(rate);
    log_.peak_memory = std::max(log_.peak_memory, peak);
  }

  void take_skipped() {
    const std::size_t step = count(must_have("step"));
    const member* reason = event_.find("reason");
    if (is_replaced_step(step)) return;
    ++log_.skipped;
    log_.last_step = std::max(log_.last_step, step);
    log_.skips.push_back({step, reason == nullptr ? std::string() : printable(reason->text, 300)});
    if (log_.skips.size() > run_log::max_skips) log_.skips.erase(log_.skips.begin());  // the first steps are read last
  }

  void take_evaluation() {
    const std::size_t step = count(must_have("step"));
    const std::optional<double> loss = number(must_have("loss"));
    if (step >= lowest_evaluation_ && step <= limit_) {
      ++log_.replaced;
      return;
    }
    if (is_replaced_beside(step)) return;
    lowest_evaluation_ = step;
    if (loss) log_.held_out.add(step, *loss);
    else ++log_.held_out.not_finite;
  }

  void take_rank() {
    const std::size_t step = count(must_have("step")), rank = count(must_have("rank"));
    require<unusable_line>(rank < run_log::max_ranks, "'rank' must be below ", run_log::max_ranks, "; given ", rank);
    (void)must_have("seconds");
    const double seconds = amount("seconds"), waiting = amount("waiting"), tokens = amount("tokens");
    const std::size_t peak = count_or_0("peak_memory");
    if (is_replaced_beside(step)) return;
    rank_log& to = log_.ranks[rank];
    ++to.measurements;
    to.seconds += seconds;
    to.waiting += std::min(waiting, seconds);
    to.tokens += tokens;
    to.peak_memory = std::max(to.peak_memory, peak);
    log_.rank_seconds.add(step, seconds);
    log_.peak_memory = std::max(log_.peak_memory, peak);
  }

  void take_checkpoint() {
    const std::size_t step = count(must_have("step"));
    const double seconds = amount("seconds");
    if (is_replaced_beside(step)) return;
    ++log_.checkpoints;
    log_.last_checkpoint = std::max(log_.last_checkpoint, step);
    log_.checkpoint_seconds += seconds;
  }

  void take_run(std::string_view line) {
    const std::size_t first = count_or_0("first_step"), time = count_or_0("unix_time");
    const std::array<std::size_t, 5> counts{count_or_0("max_steps"), count_or_0("parameters"), count_or_0("trainable_parameters"),
                                            count_or_0("global_batch_size"), count_or_0("seq_length")};
    const auto memory = bytes_by_role(line, "memory");
    if (first > limit_ || first > lowest_step_) {
      ++log_.replaced;
      settings_since_.reset();
      return;
    }
    if (log_.parts.empty()) {  // the last part
      log_.max_steps = counts[0];
      log_.parameters = counts[1];
      log_.trainable_parameters = counts[2];
      log_.global_batch_size = counts[3];
      log_.seq_length = counts[4];
    }
    for (std::size_t r = 0; r < memory_roles; ++r) log_.allocated[r] = log_.allocated[r] == 0 ? memory[r] : log_.allocated[r];
    if (settings_since_) compare_settings(*settings_since_, first);
    settings_since_.reset();
    log_.parts.push_back({line_, first, time});
    limit_ = std::min(limit_, first);
    ends_ = true;
    replaces_all_ = first == 0;
  }

  void take_settings(std::string_view line) {
    const json all = document(line);
    std::vector<std::pair<std::string, std::string>> settings;
    for (const auto& [group, object] : all.items()) {
      if (group == "event" || group == "plan") continue;
      flatten(printable(group, 100), object, settings);
    }
    const auto planned = bytes_by_role(line, "plan");
    if (log_.settings.empty() && log_.parts.empty()) {
      log_.settings = settings;
      log_.planned = planned;
    }
    settings_since_ = std::move(settings);
  }

  void take_end(std::string_view line) {
    const std::size_t step = count_or_0("step"), peak_memory = count_or_0("peak_memory"), stopped = count_or_0("stopped");
    const auto peak = bytes_by_role(line, "memory");
    if (is_replaced_beside(step)) return;
    log_.peak_memory = std::max(log_.peak_memory, peak_memory);
    for (std::size_t r = 0; r < memory_roles; ++r) log_.peak[r] = std::max(log_.peak[r], peak[r]);
    if (ends_ || lowest_step_ != any_step || log_.has_end) return;  // of an earlier part
    log_.has_end = true;
    log_.stopped = stopped != 0;
    log_.last_step = std::max(log_.last_step, step);
  }

  // ---- settings ----

  [[nodiscard]] static json document(std::string_view line) { return parse_json<unusable_line>(line, "the event"); }

  static void flatten(const std::string& name, const json& value, std::vector<std::pair<std::string, std::string>>& to) {
    if (to.size() >= run_log::max_settings) return;
    if (value.is_object()) {
      for (const auto& [key, inner] : value.items()) flatten(concat(name, ".", printable(key, 100)), inner, to);
      return;
    }
    to.emplace_back(name, printable(value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace), 400));
  }

  [[nodiscard]] static std::array<std::size_t, memory_roles> bytes_by_role(std::string_view line, const char* key) {
    std::array<std::size_t, memory_roles> bytes{};
    if (line.find(concat("\"", key, "\"")) == std::string_view::npos) return bytes;
    const json all = document(line);
    const auto at = all.find(key);
    if (at == all.end()) return bytes;
    require<unusable_line>(at->is_object(), "'", key, "' must be an object of bytes by role");
    for (std::size_t r = 0; r < memory_roles; ++r) {
      const auto role = at->find(std::string(name_of(static_cast<memory_role>(r))));
      if (role == at->end()) continue;
      require<unusable_line>(role->is_number_unsigned() && role->get<std::uint64_t>() <= step_bins::max_step, "'", key, ".",
                             std::string(name_of(static_cast<memory_role>(r))), "' must be a whole number from 0 to 2^53; given ", printable(role->dump(), 80));
      bytes[r] = static_cast<std::size_t>(role->get<std::uint64_t>());
    }
    return bytes;
  }

  /// Notes settings of the part after `first` steps that differ from the last part's.
  void compare_settings(const std::vector<std::pair<std::string, std::string>>& then, std::size_t first) {
    if (log_.parts.empty() || log_.settings.empty()) return;  // the last part, or it recorded no settings
    for (const auto& [key, value] : then) {
      const std::string now = log_.setting(key);
      if (now == value || log_.changes.size() >= run_log::max_changes) continue;
      log_.changes.push_back(concat(key, " was ", value, " in the part that began after step ", first, "; at the end it is ", now.empty() ? "not set" : now));
    }
  }

  mapped_file file_;
  run_log log_{};
  event_line event_{};
  std::size_t line_ = 0, events_ = 0;
  std::size_t limit_ = any_step;  // a part already read does not replace steps up to it
  std::size_t lowest_step_ = any_step, lowest_evaluation_ = any_step;  // read so far
  bool ends_ = false;  // a beginning was read: earlier events belong to an earlier part
  bool replaces_all_ = false, too_many_ = false, no_number_ = false;
  std::optional<std::vector<std::pair<std::string, std::string>>> settings_since_{};  // of the part whose beginning comes next
};

}  // namespace detail

XTRAIN_INLINE run_log read_run_log(const std::string& path) { return detail::run_log_reader(path).read(); }

}  // namespace xtrain
