// Pre-tokenizers of a tokenizer.json: split text before the model. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/aligned_text.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/part_visitor.hpp>
#include <xtrain/text/settings_reader.hpp>
#include <xtrain/text/text_pattern.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/unicode_scripts.hpp>

namespace xtrain::detail {

/// Use of matches that split text.
enum class cut_behavior : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Pieces from matching and other ranges.
class piece_collector {
 public:
  piece_collector(std::vector<byte_range>& to, cut_behavior behavior) : to_(&to), behavior_(behavior) {}

  /// For all parts in order.
  void add(std::size_t begin, std::size_t end, bool matches) {
    const byte_range range{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
    switch (behavior_) {
      case cut_behavior::removed:
        if (!matches) put(range);
        break;
      case cut_behavior::isolated:
        put(range);
        break;
      case cut_behavior::merged_with_previous:
        if (matches && !matched_ && open_) last_.end = range.end;
        else begin_piece(range);
        break;
      case cut_behavior::merged_with_next:
        if (open_ && matched_ && !matches) last_.end = range.end;
        else begin_piece(range);
        break;
      case cut_behavior::contiguous:
        if (open_ && matched_ == matches) last_.end = range.end;
        else begin_piece(range);
        break;
    }
    matched_ = matches;
  }
  void finish() {
    if (open_) put(last_);
    open_ = false;
  }

 private:
  void begin_piece(byte_range range) {
    finish();
    last_ = range;
    open_ = true;
  }
  void put(byte_range range) {
    if (range.begin < range.end) to_->push_back(range);
  }

  std::vector<byte_range>* to_;
  cut_behavior behavior_;
  byte_range last_{};
  bool open_ = false, matched_ = false;
};

class pre_tokenizer {
 public:
  virtual ~pre_tokenizer() = default;
  virtual void apply(cut_text& text) const = 0;
};

/// Splits pieces at matches that `cut(view, visit)` reports.
template <class Cut>
void cut_pieces(cut_text& text, cut_behavior behavior, Cut&& cut) {
  const std::string_view view = text.text.view();
  std::vector<byte_range> pieces;
  pieces.reserve(text.pieces.size() * 2);
  for (const byte_range piece : text.pieces) {
    piece_collector collector(pieces, behavior);
    cut(view.substr(piece.begin, piece.end - piece.begin),
        [&](std::size_t begin, std::size_t end, bool matches) { collector.add(piece.begin + begin, piece.begin + end, matches); });
    collector.finish();
  }
  text.pieces.swap(pieces);
}

/// Rewrites pieces; rewrite(view, rewriter, piece) keeps or replaces exactly the piece's bytes.
template <class Rewrite>
void rewrite_pieces(cut_text& text, Rewrite&& rewrite) {
  const std::string_view view = text.text.view();
  text_rewriter rewriter(text.text);
  for (byte_range& piece : text.pieces) {
    const byte_range before = piece;
    rewriter.keep(before.begin);
    piece.begin = static_cast<std::uint32_t>(rewriter.size());
    rewrite(view, rewriter, before);
    rewriter.keep(before.end);
    piece.end = static_cast<std::uint32_t>(rewriter.size());
  }
  rewriter.finish();
}

/// Splits at a pattern's matches.
class split final : public pre_tokenizer {
 public:
  split(text_pattern pattern, cut_behavior behavior, bool invert) : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(cut_text& text) const override {
    cut_pieces(text, behavior_, [&](std::string_view view, const part_visitor& add) {
      pattern_.for_each_match(view, [&](std::size_t begin, std::size_t end, bool matches) { add(begin, end, matches != invert_); });
    });
  }

 private:
  text_pattern pattern_;
  cut_behavior behavior_;
  bool invert_;
};

/// Splits at each character of a kind.
template <class Kind>
class split_at final : public pre_tokenizer {
 public:
  split_at(Kind kind, cut_behavior behavior) : kind_(std::move(kind)), behavior_(behavior) {}
  void apply(cut_text& text) const override {
    cut_pieces(text, behavior_, [&](std::string_view view, const part_visitor& add) {
      std::size_t begin = 0;
      for (std::size_t at = 0; at < view.size();) {
        const character c = character_at(view, at);
        if (kind_(c.code)) {
          if (at > begin) add(begin, at, false);
          begin = at + c.bytes;
          add(at, begin, true);
        }
        at += c.bytes;
      }
      if (begin < view.size()) add(begin, view.size(), false);
    });
  }

 private:
  Kind kind_;
  cut_behavior behavior_;
};

/// Words and runs of punctuation; removes spaces.
class whitespace_split final : public pre_tokenizer {
 public:
  void apply(cut_text& text) const override {
    cut_pieces(text, cut_behavior::removed, [](std::string_view view, const part_visitor& add) {
      const auto kind_at = [&](std::size_t at) {
        const std::int32_t code = character_at(view, at).code;
        return is_word(code) ? 1 : is_space(code) ? 0 : 2;
      };
      for (std::size_t at = 0, end = 0; at < view.size(); at = end) {
        const int kind = kind_at(at);
        end = at;
        while (end < view.size() && kind_at(end) == kind) end += character_at(view, end).bytes;
        add(at, end, kind == 0);
      }
    });
  }
};

/// Splits where the script changes. Spaces and unassigned characters go with the piece before; before all text they are removed.
class script_split final : public pre_tokenizer {
 public:
  void apply(cut_text& text) const override {
    cut_pieces(text, cut_behavior::removed, [](std::string_view view, const part_visitor& add) {
      std::int32_t last = 0;
      std::size_t begin = 0;
      for (std::size_t at = 0; at < view.size();) {
        const character c = character_at(view, at);
        const std::int32_t script = script_of(c.code);
        if (script != 0 && script != last) {
          if (at > begin) add(begin, at, last == 0);
          begin = at;
          last = script;
        }
        at += c.bytes;
      }
      if (begin < view.size()) add(begin, view.size(), last == 0);
    });
  }
};

/// Pieces of equal length in characters.
class fixed_length final : public pre_tokenizer {
 public:
  explicit fixed_length(std::size_t length) : length_(length) {}
  void apply(cut_text& text) const override {
    cut_pieces(text, cut_behavior::isolated, [&](std::string_view view, const part_visitor& add) {
      for (std::size_t at = 0, end = 0; at < view.size(); at = end) {
        for (std::size_t i = 0; i < length_ && end < view.size(); ++i) end += character_at(view, end).bytes;
        add(at, end, true);
      }
    });
  }

 private:
  std::size_t length_;
};

/// Spaces become a visible character that begins words. [Kudo & Richardson 2018]
class metaspace final : public pre_tokenizer {
 public:
  enum class prepend : std::uint8_t { always, first, never };
  metaspace(std::string sign, prepend scheme, bool split) : sign_(std::move(sign)), scheme_(scheme), split_(split) {}
  void apply(cut_text& text) const override {
    rewrite_pieces(text, [&](std::string_view view, text_rewriter& rewriter, byte_range piece) {
      const std::string_view part = view.substr(piece.begin, piece.end - piece.begin);
      const bool wanted = scheme_ == prepend::always || (scheme_ == prepend::first && text.text.place(piece.begin, piece.end).begin == 0);
      if (wanted && !part.starts_with(sign_) && !part.starts_with(' ')) rewriter.replace(piece.begin, sign_);
      for (std::size_t at = part.find(' '); at != std::string_view::npos; at = part.find(' ', at + 1)) {
        rewriter.keep(piece.begin + at);
        rewriter.replace(piece.begin + at + 1, sign_);
      }
    });
    if (!split_) return;
    cut_pieces(text, cut_behavior::merged_with_next, [&](std::string_view view, const part_visitor& add) {
      std::size_t covered = 0;
      for (std::size_t at = view.find(sign_); at != std::string_view::npos; at = view.find(sign_, covered)) {
        if (at > covered) add(covered, at, false);
        covered = at + sign_.size();
        add(at, covered, true);
      }
      if (covered < view.size()) add(covered, view.size(), false);
    });
  }

 private:
  std::string sign_;
  prepend scheme_;
  bool split_;
};

/// GPT-2's split, bytes as printable characters. Before BPE alone bytes stay raw.
class byte_level final : public pre_tokenizer {
 public:
  byte_level(bool add_prefix_space, bool use_regex, bool rewrite) : prefix_space_(add_prefix_space), rewrite_(rewrite) {
    if (use_regex) cutter_.emplace(gpt2_pattern, "tokenizer");
  }
  void apply(cut_text& text) const override {
    if (prefix_space_)
      rewrite_pieces(text, [](std::string_view view, text_rewriter& rewriter, byte_range piece) {
        if (view[piece.begin] != ' ') rewriter.replace(piece.begin, " ");
      });
    if (cutter_)
      cut_pieces(text, cut_behavior::isolated, [&](std::string_view view, const part_visitor& add) { cutter_->for_each_match(view, add); });
    if (!rewrite_) return;
    rewrite_pieces(text, [](std::string_view view, text_rewriter& rewriter, byte_range piece) {
      for (std::size_t i = piece.begin; i < piece.end; ++i) {
        rewriter.keep(i);
        rewriter.replace(i + 1, printable_byte(static_cast<unsigned char>(view[i])));
      }
    });
  }

 private:
  bool prefix_space_, rewrite_;
  std::optional<word_cutter> cutter_;
};

class pre_tokenizer_sequence final : public pre_tokenizer {
 public:
  explicit pre_tokenizer_sequence(std::vector<std::unique_ptr<pre_tokenizer>> steps) : steps_(std::move(steps)) {}
  void apply(cut_text& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<pre_tokenizer>> steps_;
};

[[nodiscard]] inline cut_behavior read_behavior(const settings_reader& read, const char* name, const std::string& otherwise) {
  const std::string behavior = read.text(name, otherwise);
  if (behavior == "Removed") return cut_behavior::removed;
  if (behavior == "Isolated") return cut_behavior::isolated;
  if (behavior == "MergedWithPrevious") return cut_behavior::merged_with_previous;
  if (behavior == "MergedWithNext") return cut_behavior::merged_with_next;
  require<config_error>(behavior == "Contiguous", read.who(), ": '", name,
                        "' must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous; it is '", behavior, "'");
  return cut_behavior::contiguous;
}

/// How Metaspace treats the beginning of a text. Old files: add_prefix_space.
[[nodiscard]] inline metaspace::prepend read_prepend_scheme(const settings_reader& read) {
  if (!read.has("prepend_scheme")) return read.flag("add_prefix_space", true) ? metaspace::prepend::always : metaspace::prepend::never;
  const std::string scheme = read.text("prepend_scheme");
  if (scheme == "always") return metaspace::prepend::always;
  if (scheme == "first") return metaspace::prepend::first;
  require<config_error>(scheme == "never", read.who(), ": 'prepend_scheme' must be always, first or never; it is '", scheme, "'");
  return metaspace::prepend::never;
}

template <class Kind>
[[nodiscard]] std::unique_ptr<pre_tokenizer> make_split_at(Kind kind, cut_behavior behavior) {
  return std::make_unique<split_at<Kind>>(std::move(kind), behavior);
}

/// Null for null.
///   bytes_at_end  a last ByteLevel leaves bytes raw
///   throws        config_error for what is unsupported
[[nodiscard]] inline std::unique_ptr<pre_tokenizer> read_pre_tokenizer(const json& step, const std::string& who, bool bytes_at_end) {
  if (step.is_null()) return nullptr;
  const settings_reader read(step, who, "pre-tokenizer");
  const std::string type = type_of(step);
  if (type == "Sequence") {
    read.allow({"pretokenizers"});
    std::vector<std::unique_ptr<pre_tokenizer>> steps;
    const json& list = read.list("pretokenizers");
    for (std::size_t i = 0; i < list.size(); ++i) {
      steps.push_back(read_pre_tokenizer(list[i], who, bytes_at_end && i + 1 == list.size()));
      require<config_error>(steps.back() != nullptr, read.who(), ": every step must be an object; one is null");
    }
    return std::make_unique<pre_tokenizer_sequence>(std::move(steps));
  }
  if (type == "ByteLevel") {
    read.allow({"add_prefix_space", "trim_offsets", "use_regex"});
    (void)read.flag("trim_offsets", true);  // for offsets only
    return std::make_unique<byte_level>(read.flag("add_prefix_space", true), read.flag("use_regex", true), !bytes_at_end);
  }
  if (type == "Split") {
    read.allow({"pattern", "behavior", "invert"});
    return std::make_unique<split>(text_pattern(read.member("pattern"), read.who()), read_behavior(read, "behavior", "Isolated"),
                                   read.flag("invert", false));
  }
  if (type == "Metaspace") {
    read.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    return std::make_unique<metaspace>(read.character("replacement", "\xE2\x96\x81"), read_prepend_scheme(read), read.flag("split", true));
  }
  if (type == "Digits") {
    read.allow({"individual_digits"});
    return make_split_at(is_number, read.flag("individual_digits", false) ? cut_behavior::isolated : cut_behavior::contiguous);
  }
  if (type == "Punctuation") {
    read.allow({"behavior"});
    return make_split_at(is_punctuation, read_behavior(read, "behavior", "Isolated"));
  }
  if (type == "CharDelimiterSplit") {
    read.allow({"delimiter"});
    const std::int32_t delimiter = character_at(read.character("delimiter", ""), 0).code;
    return make_split_at([delimiter](std::int32_t code) { return code == delimiter; }, cut_behavior::removed);
  }
  if (type == "FixedLength") {
    read.allow({"length"});
    const std::uint64_t length = read.count("length");
    require<config_error>(length > 0, read.who(), ": 'length' must be positive; it is 0");
    return std::make_unique<fixed_length>(static_cast<std::size_t>(length));
  }
  read.allow({});
  if (type == "Whitespace") return std::make_unique<whitespace_split>();
  if (type == "UnicodeScripts") return std::make_unique<script_split>();
  if (type == "WhitespaceSplit") return make_split_at(is_space, cut_behavior::removed);
  if (type == "BertPreTokenizer") {
    std::vector<std::unique_ptr<pre_tokenizer>> steps;
    steps.push_back(make_split_at(is_space, cut_behavior::removed));
    steps.push_back(make_split_at(is_punctuation, cut_behavior::isolated));
    return std::make_unique<pre_tokenizer_sequence>(std::move(steps));
  }
  fail<config_error>(who, ": the pre-tokenizer must be one that this library knows; given '", type, "'");
}

}  // namespace xtrain::detail
