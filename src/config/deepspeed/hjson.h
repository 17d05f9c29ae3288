// JSON as DeepSpeed reads it (HJSON without multi-line texts): comments, trailing or missing
// commas, keys and texts without quotes, and an outermost object without braces. Convention: never
// throws on bad text; depth is bounded, and a key that stands twice in one object is a problem.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace tessera::config {

struct JsonMember;

struct JsonNode {
  Value value;  // an object is Kind::table, null is Kind::other
  std::vector<JsonMember>
      members;  // of an object, in order; objects inside lists are checked and dropped
  Place place;
  const JsonNode* find(std::string_view key) const;
  bool is_null() const { return value.kind == Value::Kind::other; }
};

struct JsonMember {
  std::string key;
  Place place;
  JsonNode value;
};

struct HjsonDocument {
  JsonNode root;                  // an object
  std::vector<Problem> problems;  // a syntax error, or keys that stand twice
};

inline constexpr std::size_t deepest_json = 64;

// `file` names the places.
HjsonDocument read_hjson(std::string_view text, const std::string& file);

// Plain or url-safe base64, padding optional; nothing when the text is something else.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace tessera::config
