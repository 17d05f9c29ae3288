// Command-line flags that stand for configuration keys: a table that the app registers in a loop.
// Convention: a flag takes one value as text, or stands for "true" where metavar is empty; reader.h
// gives it the meaning of its key.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

struct Flag {
  std::string_view name, key, metavar, help;  // "--model", "model.name", "NAME", ...
  std::string_view also = "";                 // what other programs call it: "--batch-size"
};
const std::vector<Flag>& flags();

// A value from the command line. Flags win over `--set`, whatever the order.
struct Override {
  std::string key, value;
  std::string origin;  // as typed, for messages: "--set model.depth=4", "--tp 2"
  bool is_flag = false;
};
// "model.depth=4"; text without '=' is kept and refused by load() together with all other problems.
Override from_set(std::string_view text);
Override from_flag(const Flag& flag, std::string_view value);
// The same of a flag that may stand for two keys: --np MIN:MAX.
std::vector<Override> all_from_flag(const Flag& flag, std::string_view value);

// A value as other programs write it, in our words: of precision.dtype "fp16" and "bfloat16", of
// model.name timm's and Hugging Face's names of the presets. Any other stays as it is.
std::string in_our_words(std::string_view key, std::string_view value);
// Our replacement for a flag that other programs have ("--fp16"), in a sentence; "": there is none.
std::string_view answer_to_foreign_flag(std::string_view flag);

}  // namespace tessera::config
