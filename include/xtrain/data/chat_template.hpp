// Chat templates: render a chat to the text format of a model, and find which of its bytes are answers.
// Component 'io'.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/jinja/from_json.hpp>
#include <xtrain/data/jinja/template.hpp>

namespace xtrain {

/// One turn of a chat.
struct chat_message {
  std::string role;
  std::string content;
};

/// A list of messages for a template. Use jinja_value_from_json for messages with more than role and content.
[[nodiscard]] inline jinja_value chat_messages(const std::vector<chat_message>& messages) {
  std::vector<jinja_value> all;
  for (const chat_message& message : messages) {
    jinja_mapping one;
    one.set("role", message.role);
    one.set("content", message.content);
    all.emplace_back(std::move(one));
  }
  return all;
}

/// A template's variables other than the messages.
struct chat_variables {
  bool add_generation_prompt = false;  ///< end the text where the assistant's answer begins
  jinja_value tools{};                 ///< a list of JSON schemas, or none
  jinja_value documents{};             ///< a list of documents, or none
  jinja_mapping more{};                ///< any other variables of the template: enable_thinking, date_string
  std::time_t now = 0;                 ///< time for strftime_now; 0: the current time
  jinja_limits limits{};               ///< of one rendering; finding answers may take twice that
};

/// A chat's text, and the byte ranges that the assistant says: its words and what ends its turn.
struct chat_text {
  std::string text{};
  std::vector<text_span> answers{};
};

class chat_template {
 public:
  ///   throws  config_error, with the line, if the text is not a valid template
  [[nodiscard]] static chat_template from_text(std::string_view text, std::string who = "chat template") {
    chat_template made;
    made.standard_ = std::make_shared<const jinja_template>(text, std::move(who));
    return made;
  }

  /// The template of a Hugging Face folder: chat_template.jinja, or the one in tokenizer_config.json; with the special tokens
  /// named in tokenizer_config.json and special_tokens_map.json.
  ///   throws  file_error, config_error
  [[nodiscard]] static chat_template from_folder(const std::string& folder) {
    const std::string config_path = folder + "/tokenizer_config.json", alone = folder + "/chat_template.jinja",
                      map_path = folder + "/special_tokens_map.json";
    chat_template made;
    const json config = file_exists(config_path) ? read_json(config_path) : json::object();
    require<config_error>(config.is_object(), config_path, ": must be an object; it is ", config.type_name());
    if (file_exists(alone)) made.standard_ = std::make_shared<const jinja_template>(mapped_file(alone).text(), alone);
    else if (config.contains("chat_template")) made.read_templates(config["chat_template"], config_path);
    require<config_error>(made.standard_ != nullptr, folder,
                          ": must hold chat_template.jinja, or a chat_template in tokenizer_config.json; it does not. For models that ship "
                          "none there is named_chat_template; see data/README.md");
    made.read_tokens(config);
    if (file_exists(map_path)) made.read_tokens(read_json(map_path));
    return made;
  }

  /// Renders the chat. Messages are a list of mappings.
  ///   throws  data_error if the template rejects the chat; config_error if the template fails or exceeds a limit
  [[nodiscard]] std::string apply(const std::same_as<jinja_value> auto& messages, const chat_variables& with = {}) const {
    jinja_limits limits = with.limits;
    return render(messages, with, limits).text;
  }
  [[nodiscard]] std::string apply(const std::vector<chat_message>& messages, const chat_variables& with = {}) const {
    return apply(chat_messages(messages), with);
  }

  /// Renders the chat and finds its answers. If the template has {% generation %} blocks, they mark the answers. Otherwise
  /// an answer begins where the rendered messages before it, with the generation prompt, end, and ends where the rendered
  /// messages up to it end; if the end-of-text token follows immediately it belongs to the answer.
  ///   throws  as apply; config_error if the text of messages depends on later ones, so that an answer cannot be located
  [[nodiscard]] chat_text apply_with_answers(const std::same_as<jinja_value> auto& messages, const chat_variables& with = {}) const {
    return find_answers(messages, with);
  }
  [[nodiscard]] chat_text apply_with_answers(const std::vector<chat_message>& messages, const chat_variables& with = {}) const {
    return apply_with_answers(chat_messages(messages), with);
  }

  /// The text of a special token by its name, "bos_token" or "eos_token", as templates write it. Empty: none.
  [[nodiscard]] std::string token(std::string_view name) const {
    const jinja_value* found = tokens_.find_name(name);
    return found != nullptr && found->is_text() ? found->text() : std::string{};
  }
  void set_token(std::string name, std::string text) { tokens_.set(std::move(name), std::move(text)); }

 private:
  static constexpr std::size_t most_messages = 1024;  ///< each answer is rendered three times, with all before it
  chat_template() = default;

  [[nodiscard]] const jinja_template& template_for(const chat_variables& with) const {
    return with_tools_ != nullptr && !with.tools.is_none() ? *with_tools_ : *standard_;
  }

  /// Subtracts the cost from the limits.
  [[nodiscard]] rendered_text render(const jinja_value& messages, const chat_variables& with, jinja_limits& limits) const {
    const jinja_template& used = template_for(with);
    const auto* list = messages.as_sequence();
    require<data_error>(list != nullptr, used.who(), ": messages must be a list; given ", messages.type());
    for (const jinja_value& message : list->items)
      require<data_error>(message.as_mapping() != nullptr, used.who(), ": every message must be an object; given ", message.type());
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

  [[nodiscard]] chat_text find_answers(const jinja_value& messages, const chat_variables& with) const {
    jinja_limits limits = with.limits;  // of all renderings together
    limits.steps *= 2;
    rendered_text whole = render(messages, with, limits);
    const jinja_template& used = template_for(with);
    if (used.has_generation()) {
      require<config_error>(
          !whole.lost_generation, used.who(),
          ": {% generation %} must stand where text is written, outside macros, filters and set blocks; it stands in one");
      return {std::move(whole.text), std::move(whole.generated)};
    }
    const std::vector<jinja_value>& all = messages.as_sequence()->items;
    require<data_error>(all.size() <= most_messages, used.who(), ": a chat must have at most ", most_messages,
                        " messages where a template does not mark answers by {% generation %}; this one has ", all.size());
    chat_text result{std::move(whole.text), {}};
    for (std::size_t i = 0; i < all.size(); ++i)
      if (is_answer(all[i])) result.answers.push_back(find_answer(all, i, with, result, limits));
    return result;
  }

  [[nodiscard]] static const std::string* field(const jinja_value& message, std::string_view name) {
    const jinja_value* found = message.as_mapping()->find_name(name);
    return found != nullptr && found->is_text() ? &found->text() : nullptr;
  }
  [[nodiscard]] static bool is_answer(const jinja_value& message) {
    const std::string* role = field(message, "role");
    return role != nullptr && *role == "assistant";
  }

  [[nodiscard]] static std::size_t same_until(std::string_view a, std::string_view b) {
    return static_cast<std::size_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first - a.begin());
  }
  [[nodiscard]] std::string text_of(const std::vector<jinja_value>& messages, std::size_t count, bool prompt, chat_variables with,
                                    jinja_limits& limits) const {
    with.add_generation_prompt = prompt;
    return render(std::vector<jinja_value>(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(count)), with, limits).text;
  }

  [[nodiscard]] text_span find_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
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

  /// Where the prompt ends and the answer begins. A prompt may contain more than the text before a given answer (the begin of thinking):
  /// then as far as both agree, but not into the answer's content.
  [[nodiscard]] std::size_t begin_of_answer(const std::vector<jinja_value>& all, std::size_t i, const chat_variables& with,
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

  /// The chat followed by a question, to see whether its last answer stays unchanged; `otherwise` if the template allows no question.
  [[nodiscard]] std::string text_of_another_turn(std::vector<jinja_value> all, const chat_variables& with, const std::string& otherwise,
                                                 jinja_limits& limits) const {
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

  /// One template, or several by name: "default", and "tool_use" for chats with tools.
  void read_templates(const json& from, const std::string& path) {
    if (from.is_null()) return;
    if (from.is_string()) {
      standard_ = std::make_shared<const jinja_template>(from.get_ref<const std::string&>(), path + ": chat_template");
      return;
    }
    require<config_error>(from.is_array(), path, ": chat_template must be a string or a list; it is ", from.type_name());
    for (const json& one : from) {
      require<config_error>(
          one.is_object() && one.contains("name") && one["name"].is_string() && one.contains("template") && one["template"].is_string(),
          path, ": every chat_template of a list must have a name and a template; one has not");
      const auto& name = one["name"].get_ref<const std::string&>();
      if (name != "default" && name != "tool_use") continue;
      auto made =
          std::make_shared<const jinja_template>(one["template"].get_ref<const std::string&>(), path + ": chat_template '" + name + "'");
      (name == "default" ? standard_ : with_tools_) = std::move(made);
    }
    require<config_error>(standard_ != nullptr, path, ": a list of chat_templates must have one of the name 'default'; it has none");
  }

  /// Adds special tokens not known yet: strings, or objects with a "content" member.
  void read_tokens(const json& from) {
    if (!from.is_object()) return;
    constexpr std::array<const char*, 7> names{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
    for (const char* name : names) {
      if (!from.contains(name) || tokens_.find_name(name) != nullptr) continue;
      const json& given = from[name];
      if (given.is_string()) tokens_.set(name, given.get<std::string>());
      else if (given.is_object() && given.contains("content") && given["content"].is_string())
        tokens_.set(name, given["content"].get<std::string>());
    }
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

  std::shared_ptr<const jinja_template> standard_, with_tools_;
  jinja_mapping tokens_;
};

}  // namespace xtrain
