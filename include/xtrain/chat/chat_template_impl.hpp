// Definitions of chat_template.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/chat/chat_template.hpp>
#include <xtrain/chat/jinja/from_json.hpp>
#include <xtrain/chat/jinja/template.hpp>
#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>

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
  // what is read first counts: special_tokens_map.json, or as in transformers tokenizer_config.json, null too, if it lists all added tokens
  json map = file_exists(map_path) ? read_json(map_path) : json::object();
  if (config.contains("added_tokens_decoder") && map.is_object())
    for (const auto& [name, given] : config.items()) map.erase(name);
  made.read_tokens(map);
  made.read_tokens(config);
  return made;
}

XTRAIN_INLINE bool chat_template::is_in(const std::string& folder) {
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
    std::filesystem::create_directories(std::filesystem::path(for_tools).parent_path(), problem);  // a failure is that of the next line
    write_file(for_tools, tools_text_);
  } else {
    std::filesystem::remove(for_tools, problem);  // of the template that was here before
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

XTRAIN_INLINE rendered_text chat_template::render(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const {
  const jinja_template& used = template_for(with);
  const auto* list = messages.as_sequence();
  require<data_error>(list != nullptr, used.who(), ": messages must be a list; given ", messages.type());
  for (const jinja_value& message : list->items)
    require<data_error>(message.as_mapping() != nullptr, used.who(), ": every message must be an object; given ", message.type());
  const std::string& text = &used == with_tools_.get() ? tools_text_ : text_;
  const bool writes_calls = text.find("tool_calls") != std::string::npos;
  for (const jinja_value& message : list->items) {  // such a message says nothing else: its answer would be learned as an empty one
    const jinja_value* calls = message.as_mapping()->find_name("tool_calls");
    require<data_error>(writes_calls || calls == nullptr || !calls->truth(), used.who(),
                        ": must write tool_calls, which a message has; it leaves them out. The model's own template may write them");
  }
  require<data_error>(!with.tools.truth() || text.find("tools") != std::string::npos, used.who(),
                      ": must write the tools that come with the messages; it leaves them out. The model's own template may write them");
  jinja_mapping variables = tokens_;
  variables.set("messages", messages);
  variables.set("tools", with.tools);
  variables.set("documents", with.documents);
  variables.set("add_generation_prompt", with.add_generation_prompt);
  for (const auto& more : with.more.entries()) variables.set(more.key, more.content);
  rendered_text made = used.render(variables, with.now != 0 ? with.now : std::time(nullptr), limits);
  limits.steps -= made.steps;
  return made;
}

XTRAIN_INLINE chat_text chat_template::find_answers(const jinja_value& messages, const chat_variables& with) const {
  jinja_limits limits = with.limits;  // of all renderings together
  limits.steps *= 2;
  rendered_text whole = render(messages, with, limits);
  const jinja_template& used = template_for(with);
  if (used.has_generation()) {
    require<config_error>(!whole.lost_generation, used.who(),
                          ": {% generation %} must be where text is written, outside macros, filters and set blocks; it is in one");
    return {std::move(whole.text), std::move(whole.generated)};
  }
  const std::vector<jinja_value>& all = messages.as_sequence()->items;
  require<data_error>(all.size() <= max_messages, used.who(), ": a chat must have at most ", max_messages,
                      " messages where a template does not mark answers by {% generation %}; this one has ", all.size());
  chat_text result{std::move(whole.text), {}};
  for (std::size_t i = 0; i < all.size(); ++i)
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
  std::string_view ended = upto;  // some templates end a text, though not a turn, with the end-of-text token
  if (!next.starts_with(upto) && !eos.empty() && upto.ends_with(eos)) ended.remove_suffix(eos.size());
  const std::size_t begin = begin_of_answer(all, i, with, upto, limits);
  require<config_error>(begin <= ended.size() && next.starts_with(ended) && (found.answers.empty() || found.answers.back().end <= begin),
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
  const std::string* content = field(all[i], "content");
  const std::string_view words = content == nullptr ? std::string_view{} : detail::jinja::stripped(*content, true, true);
  return std::min(same_until(prompt, upto), words.empty() ? upto.size() : upto.rfind(words));
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
  // besides bos_token and the like a model's own, as image_token, which also are in extra_special_tokens by name
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
