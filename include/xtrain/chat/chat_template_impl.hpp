#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_template.hpp>
#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/jinja/from_json.hpp>
#include <xtrain/jinja/printing.hpp>
#include <xtrain/jinja/template.hpp>
#include <xtrain/text/gguf_tokenizer_files.hpp>

namespace xtrain {

XTRAIN_INLINE jinja_value chat_messages(const std::vector<chat_message>& messages) {
  std::vector<jinja_value> all;
  for (const chat_message& message : messages) {
    jinja_mapping one;
    one.set("role", message.role);
    one.set("content", message.content);
    all.emplace_back(std::move(one));
  }
  return all;
}

XTRAIN_INLINE chat_template chat_template::from_text(std::string_view text, std::string who) {
  chat_template made;
  made.set_standard(text, std::move(who));
  return made;
}

XTRAIN_INLINE chat_template chat_template::from_folder(const std::string& folder) {
  if (gguf_file::is_one(folder)) {
    const json settings = detail::gguf_tokenizer_settings(gguf_file(folder));
    require<config_error>(settings.contains("chat_template"), folder, ": must have a tokenizer.chat_template; it has none");
    chat_template made;
    made.read_templates(settings["chat_template"], folder);
    made.read_tokens(settings);
    return made;
  }
  const std::string config_path = folder + "/tokenizer_config.json", alone = folder + "/chat_template.jinja",
                    map_path = folder + "/special_tokens_map.json";
  chat_template made;
  const json config = file_exists(config_path) ? read_json(config_path) : json::object();
  require<config_error>(config.is_object(), config_path, ": must be an object; it is ", config.type_name());
  if (file_exists(alone)) {
    made.set_standard(mapped_file(alone).text(), alone);
    const std::string for_tools = concat(folder, "/", tools_file);
    if (file_exists(for_tools)) made.set_with_tools(mapped_file(for_tools).text(), for_tools);
  } else if (config.contains("chat_template")) {
    made.read_templates(config["chat_template"], config_path);
  }
  require<config_error>(made.standard_ != nullptr, folder,
                        ": must hold chat_template.jinja, or a chat_template in tokenizer_config.json; it does not. For models that ship "
                        "none there is named_chat_template; see chat/README.md");
  // first read counts: special_tokens_map.json; or, as in transformers, tokenizer_config.json, with null, if it lists added tokens
  json map = file_exists(map_path) ? read_json(map_path) : json::object();
  if (config.contains("added_tokens_decoder") && map.is_object())
    for (const auto& [name, given] : config.items()) map.erase(name);
  made.read_tokens(map);
  made.read_tokens(config);
  return made;
}

XTRAIN_INLINE bool chat_template::is_in(const std::string& folder) {
  if (gguf_file::is_one(folder)) return gguf_file(folder).has("tokenizer.chat_template");
  if (!is_directory(folder)) return false;
  if (file_exists(folder + "/chat_template.jinja")) return true;
  const std::string config_path = folder + "/tokenizer_config.json";
  if (!file_exists(config_path)) return false;
  const json config = read_json(config_path);
  return config.is_object() && config.contains("chat_template") && !config["chat_template"].is_null();
}

XTRAIN_INLINE std::string chat_template::apply(const std::vector<chat_message>& messages, const chat_variables& with) const {
  return apply(chat_messages(messages), with);
}

XTRAIN_INLINE chat_text chat_template::apply_with_answers(const std::vector<chat_message>& messages, const chat_variables& with) const {
  return apply_with_answers(chat_messages(messages), with);
}

XTRAIN_INLINE std::string chat_template::token(std::string_view name) const {
  const jinja_value* found = tokens_.find_name(name);
  return found != nullptr && found->is_text() ? found->text() : std::string{};
}

XTRAIN_INLINE void chat_template::set_token(std::string name, std::string text) { tokens_.set(std::move(name), std::move(text)); }

XTRAIN_INLINE std::string chat_template::end_of_turn() const {
  constexpr std::string_view words = "Answer.";
  try {
    const chat_text chat = apply_with_answers(std::vector<chat_message>{{"user", "Question?"}, {"assistant", std::string(words)}});
    if (chat.answers.empty()) return {};
    const auto [begin, end] = chat.answers.back();
    const std::string_view answer = std::string_view(chat.text).substr(begin, end - begin);
    const std::size_t at = answer.find(words);
    return at == std::string_view::npos ? std::string{} : std::string(detail::jinja::stripped(answer.substr(at + words.size()), true, true));
  } catch (const error&) {
    return {};
  }
}

XTRAIN_INLINE std::string chat_template::fingerprint() const {
  std::string all = concat(text_.size(), " ", text_, tools_text_.size(), " ", tools_text_);
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) all += concat("\n", token(name));
  return checksum_text(all);
}

XTRAIN_INLINE void chat_template::save(const std::string& folder) const {
  write_file(folder + "/chat_template.jinja", text_);
  const std::string for_tools = concat(folder, "/", tools_file);
  std::error_code problem;
  if (with_tools_ != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(for_tools).parent_path(), problem);  // the next line reports a failure
    write_file(for_tools, tools_text_);
  } else {
    std::filesystem::remove(for_tools, problem);  // of a previous template
  }
}

XTRAIN_INLINE void chat_template::set_standard(std::string_view text, std::string who) {
  standard_ = std::make_shared<const jinja_template>(text, std::move(who));
  text_ = text;
}

XTRAIN_INLINE void chat_template::set_with_tools(std::string_view text, std::string who) {
  with_tools_ = std::make_shared<const jinja_template>(text, std::move(who));
  tools_text_ = text;
}

XTRAIN_INLINE const jinja_template& chat_template::template_for(const chat_variables& with) const {
  return with_tools_ != nullptr && !with.tools.is_none() ? *with_tools_ : *standard_;
}

XTRAIN_INLINE const std::string& chat_template::text_for(const chat_variables& with) const {
  return &template_for(with) == with_tools_.get() ? tools_text_ : text_;
}

XTRAIN_INLINE bool chat_template::mentions(std::string_view name, const chat_variables& with) const {
  const std::string_view text = text_for(with);
  const auto is_part = [](char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (std::size_t at = text.find(name); at != std::string_view::npos && !name.empty(); at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

namespace detail {

[[nodiscard]] inline const jinja_value* text_of_part(const jinja_value& part) {
  const jinja_mapping* members = part.as_mapping();
  const jinja_value* type = members == nullptr ? nullptr : members->find_name("type");
  if (type == nullptr || !type->is_text() || type->text() != "text") return nullptr;
  for (const char* name : {"text", "value"})
    if (const jinja_value* words = members->find_name(name); words != nullptr && !words->is_none()) return words->is_text() ? words : nullptr;
  return nullptr;
}

XTRAIN_INLINE std::optional<std::string> content_text(const jinja_value& message) {
  const jinja_value* content = message.as_mapping() == nullptr ? nullptr : message.as_mapping()->find_name("content");
  if (content == nullptr) return std::nullopt;
  if (content->is_text()) return content->text();
  if (content->as_sequence() == nullptr) return std::nullopt;
  std::string all;
  for (const jinja_value& part : content->as_sequence()->items) {
    const jinja_value* words = text_of_part(part);
    if (words == nullptr) return std::nullopt;
    all += words->text();
  }
  return all;
}

/// Empty: the key is no string.
[[nodiscard]] inline std::string_view name_of(const jinja_mapping::entry& member) {
  return member.key.is_text() ? std::string_view(member.key.text()) : std::string_view{};
}

inline constexpr std::array<std::string_view, 3> reasoning_fields{"reasoning_content", "thinking", "reasoning"};

/// Without null members, reasoning under both names. [transformers 5.24, render_jinja_template]
[[nodiscard]] inline jinja_value prepared_message(const jinja_mapping& message) {
  const jinja_value* reasoning = nullptr;
  for (const std::string_view name : reasoning_fields)
    if (const jinja_value* one = message.find_name(name); reasoning == nullptr && one != nullptr && !one->is_none()) reasoning = one;
  jinja_mapping made;
  if (reasoning != nullptr) made.set("thinking", *reasoning);
  for (const auto& entry : message.entries())
    if (!entry.content.is_none()) made.set(entry.key, entry.content);
  if (reasoning != nullptr) made.set("reasoning_content", *reasoning);
  return made;
}

/// The template read the reasoning, under any name.
[[nodiscard]] inline bool reads_reasoning(const jinja_mapping& watched) {
  for (std::size_t i = 0; i < watched.size(); ++i)
    if (std::find(reasoning_fields.begin(), reasoning_fields.end(), name_of(watched.entries()[i])) != reasoning_fields.end() && watched.reading_of(i).any())
      return true;
  return false;
}

/// Mappings record reads; other values unchanged.
[[nodiscard]] inline jinja_value watched_list(const jinja_value& list) {
  if (list.as_sequence() == nullptr) return list;
  std::vector<jinja_value> all;
  for (const jinja_value& one : list.as_sequence()->items) {
    if (one.as_mapping() == nullptr) {
      all.push_back(one);
      continue;
    }
    jinja_mapping members = *one.as_mapping();
    members.watch();
    all.emplace_back(std::move(members));
  }
  return all;
}
/// Messages and parts of contents record reads.
[[nodiscard]] inline std::vector<jinja_value> watched_messages(const std::vector<jinja_value>& messages) {
  std::vector<jinja_value> all;
  for (const jinja_value& message : messages) {
    jinja_mapping members = *message.as_mapping();
    if (const jinja_value* content = members.find_name("content"); content != nullptr && content->as_sequence() != nullptr)
      members.set("content", watched_list(*content));
    members.watch();
    all.emplace_back(std::move(members));
  }
  return all;
}

/// A list of texts that the template did not read.
[[nodiscard]] inline bool parts_are_unread(const jinja_value& message) {
  const jinja_value* content = message.as_mapping()->find_name("content");
  if (content == nullptr || content->as_sequence() == nullptr || !content_text(message)) return false;
  for (const jinja_value& part : content->as_sequence()->items) {
    const jinja_mapping& members = *part.as_mapping();
    for (std::size_t i = 0; i < members.size(); ++i)
      if (name_of(members.entries()[i]) == "text" && members.reading_of(i).named) return false;
  }
  return true;
}

/// Content: text of its parts.
[[nodiscard]] inline jinja_value joined_message(const jinja_value& message) {
  jinja_mapping made = *message.as_mapping();
  made.set("content", *content_text(message));
  return made;
}

inline void add_unread_field(std::string name, const jinja_mapping& message, std::vector<unread_field>& to, bool is_quoted = false) {
  const jinja_value* speaker = message.find_name("role");
  unread_field one{std::move(name), speaker != nullptr && speaker->is_text() ? speaker->text() : std::string(), is_quoted};
  if (std::find(to.begin(), to.end(), one) == to.end()) to.push_back(std::move(one));
}

/// A word of the content is in the text, or there is none. Templates that read parts ignore strings.
///   at  begin of the search, then its end
[[nodiscard]] inline bool holds_some_word(std::string_view text, const jinja_mapping& message, std::size_t& at) {
  const jinja_value* content = message.find_name("content");
  if (content == nullptr || !content->is_text()) return true;
  bool any = false;
  for (std::string_view rest = jinja::stripped(content->text(), true, true); !rest.empty(); rest = jinja::stripped(rest, true, false)) {
    any = true;
    const std::string_view word = rest.substr(0, rest.find_first_of(" \n\r\t"));
    std::size_t found = text.find(word, at);
    if (found == std::string_view::npos) found = text.find(word);
    if (found != std::string_view::npos) {
      at = found + word.size();
      return true;
    }
    rest.remove_prefix(word.size());
  }
  if (!any) return true;
  const std::string_view words = jinja::stripped(content->text(), true, true);  // a template may omit the beginning, a thought
  std::size_t end = words.size();
  for (int characters = 0; characters < 4 && end > 0; ++characters) end = jinja::character_before(words, end);
  return text.find(words.substr(end)) != std::string_view::npos;
}

/// The text names every call. A template may read tool_calls only to skip the message.
[[nodiscard]] inline bool names_calls(std::string_view text, const jinja_mapping& message) {
  const jinja_value* calls = message.find_name("tool_calls");
  if (calls == nullptr || calls->as_sequence() == nullptr) return true;
  for (const jinja_value& call : calls->as_sequence()->items) {
    const jinja_mapping* members = call.as_mapping();
    const jinja_value* function = members == nullptr ? nullptr : members->find_name("function");
    if (function != nullptr) members = function->as_mapping();
    const jinja_value* name = members == nullptr ? nullptr : members->find_name("name");
    if (name == nullptr || !name->is_text()) continue;
    std::string quoted;
    jinja::append_json(quoted, name->text(), false);
    if (text.find(name->text()) == std::string_view::npos && text.find(quoted) == std::string_view::npos) return false;
  }
  return true;
}

/// Adds arguments that are JSON text and quoted in the chat.
inline void add_quoted_arguments(std::string_view text, const jinja_mapping& message, std::vector<unread_field>& to) {
  const jinja_value* calls = message.find_name("tool_calls");
  if (calls == nullptr || calls->as_sequence() == nullptr) return;
  for (const jinja_value& call : calls->as_sequence()->items) {
    const jinja_mapping* members = call.as_mapping();
    const jinja_value* function = members == nullptr ? nullptr : members->find_name("function");
    if (function != nullptr) members = function->as_mapping();
    const jinja_value* given = members == nullptr ? nullptr : members->find_name("arguments");
    if (given == nullptr || !given->is_text() || given->text().find('"') == std::string::npos) continue;
    std::string quoted;
    jinja::append_json(quoted, given->text(), false);
    if (text.find(quoted) != std::string_view::npos) add_unread_field("arguments", message, to, true);
  }
}

/// Fields that the template did not read.
///   given    original
///   watched  rendered
inline void add_unread(const jinja_mapping& given, const jinja_mapping& watched, std::vector<unread_field>& to) {
  const auto add = [&](std::string name) { add_unread_field(std::move(name), given, to); };
  const auto is_reasoning = [](std::string_view name) {
    return std::find(reasoning_fields.begin(), reasoning_fields.end(), name) != reasoning_fields.end();
  };
  /// Equal words may have been read under another name.
  const auto read_as_other = [&](const jinja_value& words) {
    for (std::size_t i = 0; i < watched.size(); ++i) {
      const jinja_value& content = watched.entries()[i].content;
      const bool is_other = words.is_text() && content.is_text() && words.text() != content.text();
      if (is_reasoning(name_of(watched.entries()[i])) && watched.reading_of(i).any() && !is_other) return true;
    }
    return false;
  };
  const auto add_parts = [&](const jinja_value& content, bool joined) {
    if (content.as_sequence() == nullptr) return;
    for (const jinja_value& part : content.as_sequence()->items)
      for (std::size_t i = 0; part.as_mapping() != nullptr && i < part.as_mapping()->size(); ++i) {
        const auto& member = part.as_mapping()->entries()[i];
        const std::string_view name = name_of(member);
        const bool is_known = joined ? name == "text" || name == "value" : part.as_mapping()->reading_of(i).any();
        if (name != "type" && member.content.truth() && !is_known) add(concat("content[].", name));
      }
  };
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const jinja_value& content = watched.entries()[i].content;
    const std::string_view name = name_of(watched.entries()[i]);
    const jinja_value* own = given.find_name(name);
    if (name == "role" || own == nullptr || own->is_none() || !own->truth()) continue;
    const bool is_read = watched.reading_of(i).any();
    if (name == "content" && is_read) add_parts(content.is_text() ? *own : content, content.is_text());
    if (!is_read && !(is_reasoning(name) && read_as_other(content))) add(std::string(name));
  }
}

}  // namespace detail

XTRAIN_INLINE rendered_text chat_template::render(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const {
  jinja_mapping variables = tokens_;
  variables.set("messages", messages);
  variables.set("tools", with.tools);
  variables.set("documents", with.documents);
  variables.set("add_generation_prompt", with.add_generation_prompt);
  for (const auto& more : with.more.entries()) variables.set(more.key, more.content);
  rendered_text made = template_for(with).render(variables, with.now != 0 ? with.now : std::time(nullptr), limits);
  limits.steps -= made.steps;
  return made;
}

XTRAIN_INLINE detail::rendered_chat chat_template::render_chat(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const {
  const jinja_template& used = template_for(with);
  const auto* list = messages.as_sequence();
  require<data_error>(list != nullptr, used.who(), ": messages must be a list; given ", messages.type());
  detail::rendered_chat result;
  for (const jinja_value& message : list->items) {
    require<data_error>(message.as_mapping() != nullptr, used.who(), ": every message must be an object; given ", message.type());
    result.messages.push_back(detail::prepared_message(*message.as_mapping()));
  }
  constexpr const char* own = "; it leaves them out. The model's own template may write them";
  const auto writes_calls = [&](bool holds) { require<data_error>(holds, used.who(), ": must write tool_calls, which a message has", own); };
  const auto writes = [&](bool holds, const char* what) {
    require<data_error>(holds, used.who(), ": must write the ", what, " that come with the messages", own);
  };
  for (const jinja_value& message : result.messages) {  // else an empty answer would be learned
    const jinja_value* calls = message.as_mapping()->find_name("tool_calls");
    writes_calls(calls == nullptr || !calls->truth() || mentions("tool_calls", with));
  }
  writes(!with.tools.truth() || text_for(with).find("tools") != std::string::npos, "tools");

  std::vector<jinja_value> watched;
  const auto join = [&](const auto& chosen) {
    bool any = false;
    for (std::size_t i = 0; i < result.messages.size(); ++i) {
      if (!chosen(i)) continue;
      any = true;
      result.messages[i] = detail::joined_message(result.messages[i]);
    }
    return any;
  };
  do {
    watched = detail::watched_messages(result.messages);
    try {
      result.made = render(watched, with, limits);
    } catch (const error&) {  // the template takes contents for text
      if (!join([&](std::size_t i) { return detail::parts_are_unread(watched[i]); })) throw;
      continue;
    }
    if (!join([&](std::size_t i) { return detail::parts_are_unread(watched[i]); })) break;
  } while (true);

  writes(!with.tools.truth() || result.made.read_tools, "tools");
  writes(!with.documents.truth() || result.made.read_documents, "documents");
  std::size_t at = 0;  // after the words found last
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const jinja_mapping &given = *list->items[i].as_mapping(), &members = *watched[i].as_mapping();
    detail::add_unread(given, members, result.unread);
    detail::add_quoted_arguments(result.made.text, members, result.unread);
    if (!detail::names_calls(result.made.text, members)) detail::add_unread_field("tool_calls", given, result.unread);
    if (!detail::holds_some_word(result.made.text, members, at)) detail::add_unread_field("content", given, result.unread);
    bool any = false, any_read = false;
    std::string_view first;
    for (std::size_t k = 0; k < members.size(); ++k) {
      const std::string_view name = detail::name_of(members.entries()[k]);
      if (name == "role" || !members.entries()[k].content.truth() || given.find_name(name) == nullptr) continue;
      if (!std::exchange(any, true)) first = name;
      any_read = any_read || members.reading_of(k).any();
      if (name == "tool_calls") writes_calls(members.reading_of(k).any());
    }
    require<data_error>(!any || any_read || members.find_name("content") != nullptr || detail::reads_reasoning(members), used.who(),
                        ": must write what a message without content has, '", first, "'; it leaves it out");
  }
  return result;
}

XTRAIN_INLINE chat_text chat_template::find_answers(const jinja_value& messages, const chat_variables& with, std::size_t first) const {
  jinja_limits limits = with.limits;  // of all renderings
  limits.steps *= 2;
  detail::rendered_chat whole = render_chat(messages, with, limits);
  const jinja_template& used = template_for(with);
  if (used.has_generation()) {
    require<config_error>(!whole.made.lost_generation, used.who(),
                          ": {% generation %} must be where text is written, outside macros, filters and set blocks; it is in one");
    return {std::move(whole.made.text), std::move(whole.made.generated), std::move(whole.unread)};
  }
  const std::vector<jinja_value>& all = whole.messages;
  require<data_error>(all.size() <= max_messages, used.who(), ": a chat must have at most ", max_messages,
                      " messages where a template does not mark answers by {% generation %}; this one has ", all.size());
  chat_text result{std::move(whole.made.text), {}, std::move(whole.unread)};
  for (std::size_t i = first; i < all.size(); ++i)
    if (is_answer(all[i])) result.answers.push_back(find_answer(all, i, with, result, limits));
  return result;
}

XTRAIN_INLINE const std::string* chat_template::field(const jinja_value& message, std::string_view name) {
  const jinja_value* found = message.as_mapping()->find_name(name);
  return found != nullptr && found->is_text() ? &found->text() : nullptr;
}

XTRAIN_INLINE bool chat_template::is_answer(const jinja_value& message) {
  const std::string* role = field(message, "role");
  return role != nullptr && *role == "assistant";
}

XTRAIN_INLINE std::size_t chat_template::same_until(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first - a.begin());
}

XTRAIN_INLINE std::string chat_template::text_of(const std::vector<jinja_value>& messages, std::size_t count, bool prompt,
                                                 chat_variables with, jinja_limits& limits) const {
  with.add_generation_prompt = prompt;
  return render(std::vector<jinja_value>(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)), with, limits).text;
}

XTRAIN_INLINE text_span chat_template::find_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
                                                   const chat_text& found, jinja_limits& limits) const {
  const std::string upto = text_of(all, i + 1, false, with, limits), eos = token("eos_token");
  const std::string next = i + 1 < all.size() ? found.text : text_of_another_turn(all, with, upto, limits);
  std::string_view ended = upto;  // some templates end a text, not a turn, with the end-of-text token
  if (!next.starts_with(upto) && !eos.empty() && upto.ends_with(eos)) ended.remove_suffix(eos.size());
  const std::size_t begin = begin_of_answer(all, i, with, upto, limits);
  // a following question may change the last answer (Qwen3), unless the next answer begins here
  const bool stays = next.starts_with(ended) || (i + 1 == all.size() && ends_without_prompt(all, with, upto, limits));
  require<config_error>(begin <= ended.size() && stays && (found.answers.empty() || found.answers.back().end <= begin),
                        template_for(with).who(),
                        ": must write a message the same whatever follows it, or mark answers by {% generation %}; ", "message ", i,
                        " is written otherwise when others follow");
  if (i + 1 == all.size()) return {begin, std::min(upto.size(), found.text.size())};
  const bool eos_follows = !eos.empty() && std::string_view(found.text).substr(ended.size()).starts_with(eos);
  return {begin, ended.size() + (eos_follows ? eos.size() : 0)};
}

XTRAIN_INLINE std::size_t chat_template::begin_of_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
                                                         std::string_view upto, jinja_limits& limits) const {
  const std::string prompt = text_of(all, i, true, with, limits);
  if (upto.starts_with(prompt)) return prompt.size();
  const std::string before = text_of(all, i, false, with, limits);
  require<config_error>(
      upto.starts_with(before) && prompt.starts_with(before), template_for(with).who(),
      ": must write the messages before an answer the same whether it follows or not, or mark answers by {% generation %}; those before message ",
      i, " are written otherwise");
  const std::string content = detail::content_text(all[i]).value_or(std::string());
  const std::string_view words = detail::jinja::stripped(content, true, true);
  return std::min(same_until(prompt, upto), words.empty() ? upto.size() : upto.rfind(words));
}

XTRAIN_INLINE bool chat_template::ends_without_prompt(const std::vector<jinja_value>& all, const chat_variables& with, const std::string& upto,
                                                      jinja_limits& limits) const {
  const std::size_t before = all.size() - 1;
  try {
    return text_of(all, before, true, with, limits) != text_of(all, before, false, with, limits) || text_of(all, all.size(), true, with, limits) != upto;
  } catch (const error&) {  // a template may require an answer, or allow no prompt after one
    return false;
  }
}

XTRAIN_INLINE std::string chat_template::text_of_another_turn(std::vector<jinja_value> all, const chat_variables& with,
                                                              const std::string& otherwise, jinja_limits& limits) const {
  jinja_mapping question;
  question.set("role", "user");
  question.set("content", "?");
  all.emplace_back(std::move(question));
  try {
    return text_of(all, all.size(), false, with, limits);
  } catch (const error&) {
    return otherwise;
  }
}

XTRAIN_INLINE void chat_template::read_templates(const json& from, const std::string& path) {
  if (from.is_null()) return;
  if (from.is_string()) {
    set_standard(from.get_ref<const std::string&>(), path + ": chat_template");
    return;
  }
  require<config_error>(from.is_array(), path, ": chat_template must be a string or a list; it is ", from.type_name());
  for (const json& one : from) {
    require<config_error>(
        one.is_object() && one.contains("name") && one["name"].is_string() && one.contains("template") && one["template"].is_string(), path,
        ": every chat_template of a list must have a name and a template; one has not");
    const auto& name = one["name"].get_ref<const std::string&>();
    if (name != "default" && name != "tool_use") continue;
    const auto& text = one["template"].get_ref<const std::string&>();
    const std::string who = path + ": chat_template '" + name + "'";
    if (name == "default") set_standard(text, who);
    else set_with_tools(text, who);
  }
  require<config_error>(standard_ != nullptr, path, ": a list of chat_templates must have one of the name 'default'; it has none");
}

XTRAIN_INLINE void chat_template::read_tokens(const json& from) {
  if (!from.is_object()) return;
  const auto read = [&](const std::string& name, const json& given) {
    if (tokens_.find_name(name) != nullptr) return;
    if (given.is_string()) tokens_.set(name, given.get<std::string>());
    else if (given.is_object() && given.contains("content") && given["content"].is_string())
      tokens_.set(name, given["content"].get<std::string>());
  };
  // also a model's tokens, as image_token, listed by name in extra_special_tokens
  for (const auto& [name, given] : from.items())
    if (name.ends_with("_token")) read(name, given);
  if (const auto extra = from.find("extra_special_tokens"); extra != from.end() && extra->is_object())
    for (const auto& [name, given] : extra->items()) read(name, given);
  constexpr const char* more = "additional_special_tokens";
  if (!from.contains(more) || !from[more].is_array() || tokens_.find_name(more) != nullptr) return;
  std::vector<jinja_value> texts;
  for (const json& one : from[more]) {
    if (one.is_string()) texts.emplace_back(one.get<std::string>());
    else if (one.is_object() && one.contains("content") && one["content"].is_string())
      texts.emplace_back(one["content"].get<std::string>());
  }
  tokens_.set(more, std::move(texts));
}

}  // namespace xtrain
