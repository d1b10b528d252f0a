// The formats of conversations in public data sets.
#pragma once

#include <cstdint>

namespace xtrain {

/// How a record holds its conversation. `automatic` detects the format from the record's field names.
enum class chat_form : std::uint8_t {
  automatic,
  messages,       ///< messages: role and content; or the record is that list itself
  conversations,  ///< conversations, as in ShareGPT: from and value
  instruction,    ///< instruction, input, output; earlier turns are in the instruction, marked "Human:" and "Assistant:"
  moss            ///< chat: turn_1, turn_2, ..., each with Human and MOSS; meta_instruction
};

}  // namespace xtrain
