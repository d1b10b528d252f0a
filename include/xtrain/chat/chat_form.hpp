// The formats of conversations and preferences in public data sets.
#pragma once

#include <cstdint>
#include <string>

namespace xtrain {

/// How a record holds its conversation. `automatic` detects the format from the record's field names.
enum class chat_form : std::uint8_t {
  automatic,
  messages,       ///< messages: role and content; or the record is that list itself
  conversations,  ///< conversations, as in ShareGPT: from and value
  instruction,    ///< instruction, input, output; earlier turns are in the instruction, marked "Human:" and "Assistant:"
  moss,           ///< chat: turn_1, turn_2, ..., each with Human and MOSS; meta_instruction
  prompt_completion  ///< prompt and completion, both strings or both lists of messages, as in trl; the completion is learned
};

/// How a record holds a prompt and its answers. `automatic`: strings are used as they are, unless the prompt is an instruction, a question or a
/// list of messages.
enum class preference_form : std::uint8_t {
  automatic,
  text,     ///< strings, used as they are
  messages  ///< rendered by a chat template; a string is what the user or the assistant says
};

/// The fields of a record with a chosen and a rejected answer, where they have names of their own. Empty: one of the names of public sets.
struct preference_fields {
  std::string prompt{};  ///< the whole prompt, a string or a list of messages: other fields (system, history, ...) are not read then
  std::string chosen{}, rejected{};
};

}  // namespace xtrain
