#include "config/deepspeed/hjson.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace tessera::config {
namespace {

using Kind = Value::Kind;

struct Syntax {  // thrown inside this file only
  Problem problem;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A number of the JSON grammar; whole ones that fit become integers.
bool read_number(std::string_view text, Value& out) {
  std::string_view rest = text;
  const auto digits = [&] {
    const std::size_t n = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(n);
    return n;
  };
  if (rest.starts_with('-')) rest.remove_prefix(1);
  if (rest.size() > 1 && rest[0] == '0' && is_digit(rest[1])) return false;
  if (digits() == 0) return false;
  bool whole = true;
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    whole = false;
    if (digits() == 0) return false;
  }
  if (rest.starts_with('e') || rest.starts_with('E')) {
    rest.remove_prefix(1);
    whole = false;
    if (rest.starts_with('+') || rest.starts_with('-')) rest.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (!rest.empty()) return false;
  const char *first = text.data(), *end = first + text.size();
  out.kind = Kind::integer;
  if (whole && std::from_chars(first, end, out.integer).ec == std::errc()) return true;
  out.kind = Kind::real;
  return std::from_chars(first, end, out.real).ec ==
         std::errc();  // past double: a text, as any other word
}

void append_utf8(std::string& out, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
    return put(0x80 | (c & 0x3f));
  }
  if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    return put(0x80 | (c & 0x3f));
  }
  put(0xf0 | c >> 18);
  put(0x80 | (c >> 12 & 0x3f));
  put(0x80 | (c >> 6 & 0x3f));
  put(0x80 | (c & 0x3f));
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  HjsonDocument run() {
    HjsonDocument out;
    try {
      if (text_.starts_with("\xef\xbb\xbf")) at_ = counted_ = 3;
      for (std::string_view rest = text_.substr(at_); !rest.empty();) {
        const std::size_t n = utf8_length(rest);
        if (n == 0) {
          at_ = text_.size() - rest.size();
          fail("this byte is not valid UTF-8", "save the file as UTF-8");
        }
        rest.remove_prefix(n);
      }
      space();
      out.root.place = place();
      if (peek() == '[')
        fail("expected an object, found a list",
             "a configuration looks like {\"train_batch_size\": 32}");
      out.root.value.kind = Kind::table;
      const bool braces = peek() == '{';
      if (braces) ++at_;
      members(out.root, braces ? '}' : '\0', 1);
      space();
      if (at_ < text_.size()) fail("something stands after the end of the object", "");
    } catch (Syntax& e) {
      problems_.push_back(std::move(e.problem));
    }
    out.problems = std::move(problems_);
    return out;
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool ended() const { return at_ >= text_.size(); }

  // Lines are counted up to the place of the last call: places are asked for in order.
  Place place() {
    for (; counted_ < at_;
         counted_ += std::max<std::size_t>(1, utf8_length(text_.substr(counted_)))) {
      ++column_;
      if (text_[counted_] == '\n') {
        ++line_;
        column_ = 1;
      }
    }
    return {file_, line_, column_};
  }

  [[noreturn]] void fail(std::string message, std::string advice) {
    if (at_ < counted_) {
      counted_ = 0;
      line_ = column_ = 1;
    }
    throw Syntax{{place(), "not valid JSON: " + std::move(message), std::move(advice)}};
  }

  // White space and comments.
  void space() {
    while (!ended()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else if (c == '#' || (c == '/' && peek(1) == '/')) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '/' && peek(1) == '*') {
        const std::size_t end = text_.find("*/", at_ + 2);
        if (end == text_.npos) fail("this comment is not closed", "put */ at its end");
        at_ = end + 2;
      } else {
        return;
      }
    }
  }

  // Up to and with `close`; '\0': the end of the text.
  void members(JsonNode& object, char close, std::size_t depth) {
    std::map<std::string, std::int64_t, std::less<>> lines;  // of the keys so far
    for (;;) {
      space();
      if (close != '\0' && peek() == close && !ended()) return void(++at_);
      if (ended()) {
        if (close == '\0') return;
        fail("the object is not closed", "put a } at its end");
      }
      const Place at = place();
      std::string key = name();
      space();
      if (peek() != ':') fail("expected ':' after the key", "");
      ++at_;
      JsonNode value = node(depth);
      if (const auto [it, fresh] = lines.emplace(key, at.line); fresh)
        object.members.push_back({std::move(key), at, std::move(value)});
      else
        problems_.push_back(
            {at, fmt::format("the key \"{}\" stands twice in one object", clean(key, 60)),
             fmt::format("the first is in line {}", it->second)});
      space();
      if (peek() == ',') ++at_;
    }
  }

  std::string name() {
    if (peek() == '"' || peek() == '\'') return quoted();
    const std::size_t end = std::min(text_.find_first_of(" \t\r\n:,{}[]#\"'", at_), text_.size());
    if (end == at_) fail("expected a key", "keys look like \"train_batch_size\"");
    std::string out(text_.substr(at_, end - at_));
    at_ = end;
    return out;
  }

  JsonNode node(std::size_t depth) {
    space();
    JsonNode out;
    out.place = place();
    const char c = peek();
    if (depth >= deepest_json)
      fail(fmt::format("values nest deeper than {}", deepest_json), "no key needs that");
    if (c == '{') {
      ++at_;
      out.value.kind = Kind::table;
      members(out, '}', depth + 1);
    } else if (c == '[') {
      ++at_;
      out.value.kind = Kind::list;
      for (;;) {
        space();
        if (ended()) fail("the list is not closed", "put a ] at its end");
        if (peek() == ']') break;
        out.value.items.push_back(node(depth + 1).value);
        space();
        if (peek() == ',') ++at_;
      }
      ++at_;
    } else if (c == '"' || c == '\'') {
      if (text_.substr(at_).starts_with("'''"))
        fail("multi-line texts are not read", "put the text in double quotes");
      out.value.kind = Kind::text;
      out.value.text = quoted();
    } else if (ended() || c == ',' || c == ':' || c == '}' || c == ']') {
      fail("expected a value", "");
    } else {
      out.value = bare();
    }
    return out;
  }

  // A word, a number, or a text without quotes, which ends with its line.
  Value bare() {
    const std::size_t begin = at_;
    const auto trimmed = [&] {
      const std::string_view word = text_.substr(begin, at_ - begin);
      return word.substr(0, word.find_last_not_of(" \t\r") + 1);
    };
    Value v;
    for (;; ++at_) {
      const char c = peek();
      const bool line_ends = ended() || c == '\n';
      if (!line_ends && c != ',' && c != '}' && c != ']' && c != '#' &&
          !(c == '/' && (peek(1) == '/' || peek(1) == '*')))
        continue;
      const std::string_view word = trimmed();
      if (word == "null") {
        v.text = "null";
        return v;
      }
      if (word == "true" || word == "false") {
        v.kind = Kind::boolean;
        v.boolean = word == "true";
        return v;
      }
      if (word.size() < 400 && read_number(word, v)) return v;
      if (line_ends) {
        v.kind = Kind::text;
        v.text = word;
        return v;
      }
    }
  }

  std::string quoted() {
    const char quote = text_[at_++];
    std::string out;
    for (;;) {
      if (ended() || peek() == '\n')
        fail("this text is not closed", std::string("put a ") + quote + " at its end");
      const char c = text_[at_++];
      if (c == quote) return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      static constexpr std::string_view from = "\"\\/bfnrt'", to = "\"\\/\b\f\n\r\t'";
      const char next = peek();
      if (const std::size_t i = from.find(next); i != from.npos && !ended()) {
        ++at_;
        out += to[i];
      } else if (next == 'u') {
        ++at_;
        append_utf8(out, escaped());
      } else {
        fail("a backslash stands before something that it cannot escape",
             "write \\\\ for a backslash");
      }
    }
  }

  std::uint32_t unit() {
    std::uint32_t out = 0;
    const std::string_view hex = text_.substr(at_, 4);
    const auto [stop, code] = std::from_chars(hex.data(), hex.data() + hex.size(), out, 16);
    if (hex.size() < 4 || code != std::errc() || stop != hex.data() + 4)
      fail("expected four hexadecimal digits after \\u", "");
    at_ += 4;
    return out;
  }

  std::uint32_t escaped() {
    const std::uint32_t high = unit();
    if (high < 0xd800 || high > 0xdfff) return high;
    std::uint32_t low = 0;
    if (high < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      low = unit();
    }
    if (low < 0xdc00 || low > 0xdfff) fail("half of a surrogate pair stands alone", "");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  std::string_view text_;
  std::string file_;
  std::size_t at_ = 0, counted_ = 0;
  std::int64_t line_ = 1, column_ = 1;
  std::vector<Problem> problems_;
};

}  // namespace

const JsonNode* JsonNode::find(std::string_view key) const {
  const auto it = std::find_if(members.begin(), members.end(),
                               [&](const JsonMember& m) { return m.key == key; });
  return it == members.end() ? nullptr : &it->value;
}

HjsonDocument read_hjson(std::string_view text, const std::string& file) {
  return Parser(text, file).run();
}

std::optional<std::string> decode_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  if (text.empty() || text.size() % 4 == 1) return {};
  std::string out;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    std::uint32_t six = 0;
    if (c >= 'A' && c <= 'Z')
      six = static_cast<std::uint32_t>(c - 'A');
    else if (c >= 'a' && c <= 'z')
      six = static_cast<std::uint32_t>(c - 'a' + 26);
    else if (is_digit(c))
      six = static_cast<std::uint32_t>(c - '0' + 52);
    else if (c == '-' || c == '+')
      six = 62;
    else if (c == '_' || c == '/')
      six = 63;
    else
      return {};
    bits = (bits << 6 | six) & 0xffffff;
    held += 6;
    if (held >= 8) {
      held -= 8;
      out += static_cast<char>(bits >> held & 0xff);
    }
  }
  return out;
}

}  // namespace tessera::config
