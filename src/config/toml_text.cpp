// TOML text -> entries. The only translation unit that sees toml++.
// Convention: text is scanned before the library sees it; depth is bounded (nested values by the
// library, dotted keys by the scan), because tables are freed recursively.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_MAX_NESTED_VALUES 16
#define TOML_ASSERT(expr) \
  static_assert(true)  // its parser asserts on malformed keys that it goes on to refuse properly
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "config/tree.h"

namespace tessera::config {
namespace {

constexpr std::int64_t most_dots = 256;  // in one line: a dotted key nests as deep as it has dots

Place place(const toml::source_region& region, const std::string& file) {
  return {file, static_cast<std::int64_t>(region.begin.line),
          static_cast<std::int64_t>(region.begin.column)};
}

Value convert(const toml::node& node) {
  Value v;
  if (const auto* b = node.as_boolean()) {
    v.kind = Value::Kind::boolean;
    v.boolean = b->get();
  } else if (const auto* i = node.as_integer()) {
    v.kind = Value::Kind::integer;
    v.integer = i->get();
  } else if (const auto* d = node.as_floating_point()) {
    v.kind = Value::Kind::real;
    v.real = d->get();
  } else if (const auto* s = node.as_string()) {
    v.kind = Value::Kind::text;
    v.text = s->get();
  } else if (const auto* a = node.as_array()) {
    v.kind = Value::Kind::list;
    for (const toml::node& item : *a) v.items.push_back(convert(item));
  } else if (node.is_table()) {
    v.kind = Value::Kind::table;
  } else {
    v.text = "a date or time";
  }
  return v;
}

// Keys in the order of the file: the library sorts them by name.
Node convert_tree(const toml::node& node, const Place& key_place, const std::string& file) {
  Node out;
  out.key_place = key_place;
  out.place = place(node.source(), file);
  out.value = convert(node);
  if (const toml::table* table = node.as_table()) {
    if (key_place.line > 0) out.place = key_place;
    for (const auto& [key, value] : *table) {
      out.children.push_back(convert_tree(value, place(key.source(), file), file));
      out.children.back().key = std::string(key.str());
    }
    std::stable_sort(out.children.begin(), out.children.end(), [](const Node& a, const Node& b) {
      return std::pair(a.key_place.line, a.key_place.column) <
             std::pair(b.key_place.line, b.key_place.column);
    });
  } else if (const toml::array* list = node.as_array()) {
    for (const toml::node& item : *list)
      if (item.is_table())
        out.children.push_back(convert_tree(item, place(item.source(), file), file));
  }
  return out;
}

// The library's sentence without its capital, its full stop and its place (ours says it).
Problem syntax_problem(const toml::parse_error& e, const std::string& file) {
  std::string text(e.description());
  if (text.starts_with("Error while parsing ")) text = "cannot read " + text.substr(20);
  return {place(e.source(), file), "not valid TOML: " + clean(text, 300), ""};
}

// Looks for what the library must not be given: a line that nests too deep, bytes that are no
// UTF-8, and non-ASCII characters where it looks for white space (outside quotes and in multi-line
// texts: its table of Unicode spaces reaches an "unreachable" branch there). A quote inside a word
// begins no text for the library, so it is refused here: what follows would not be in quotes. Nor
// does it stop where a word ends after a date and a space. A quote that is never closed is refused
// too, which the library takes for a control character.
class Scan {
 public:
  Scan(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::optional<Problem> run() {
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    while (!text_.empty()) {
      const std::size_t bytes = utf8_length(text_);
      if (bytes == 0) return problem("this byte is not valid UTF-8", "save the file as UTF-8");
      if (text_[0] == '.' && ++dots_ > most_dots)
        return problem(fmt::format("this line has more than {} dots", most_dots),
                       "no key nests that deep");
      if (state_ == State::plain && is_quote(text_[0]) && word_ != Word::none)
        return problem("a quote stands directly after something else",
                       "put the whole text in quotes");
      if (state_ == State::plain && word_ == Word::number && text_[0] == ' ' && text_.size() > 1 &&
          text_[1] >= '0' && text_[1] <= '9')
        return problem("two numbers stand side by side", "no key takes a date with a time");
      if (bytes > 1 && state_ == State::plain)
        return problem("a character that is not ASCII stands outside quotes",
                       "put the text in quotes");
      if (bytes > 1 && state_ == State::multi)
        return problem("a multi-line text has a character that is not ASCII",
                       "write it on one line");
      if (state_ == State::single && (text_[0] == '\n' || text_.starts_with("\r\n")))
        return unclosed();
      bytes > 1 ? skip(bytes) : step();
    }
    if (state_ == State::single || state_ == State::multi) return unclosed();
    return {};
  }

 private:
  enum class State { plain, comment, single, multi };
  enum class Word { none, plain, number };

  static bool is_quote(char c) { return c == '"' || c == '\''; }

  // A character outside quotes decides what the word it stands in is: the library reads on to its
  // end whatever begins like a number.
  void read_word(char c) {
    const auto is_one_of = [&](std::string_view set) { return set.find(c) != set.npos; };
    if (is_one_of(" \t\r\n]},#"))
      word_ = Word::none;
    else if (word_ == Word::none && is_one_of("+-0123456789"))
      word_ = Word::number;
    else if (word_ != Word::number)
      word_ = is_one_of("=[{.") ? Word::none : Word::plain;
  }

  void step() {
    const char c = text_[0];
    if (state_ == State::plain)
      read_word(c);  // the end of a quoted text counts as the end of a word
    if (c == '\n') {
      if (state_ != State::multi) {
        state_ = State::plain;
        word_ = Word::none;
      }
    } else if (state_ == State::plain && c == '#') {
      state_ = State::comment;
    } else if (state_ == State::plain && is_quote(c)) {
      quote_ = c;
      opened_line_ = line_;
      opened_column_ = column_;
      const std::size_t n = run_of(c, 3);
      state_ = n == 1 ? State::single : n == 2 ? State::plain : State::multi;
      return skip(n);
    } else if (state_ == State::single && c == quote_) {
      state_ = State::plain;
    } else if (state_ == State::multi && c == quote_) {
      const std::size_t n = run_of(c, 5);
      if (n >= 3) state_ = State::plain;
      return skip(n);
    } else if ((state_ == State::single || state_ == State::multi) && c == '\\' && quote_ == '"' &&
               text_.size() > 1 && (text_[1] == '"' || text_[1] == '\\')) {
      return skip(2);
    }
    skip(1);
  }

  std::size_t run_of(char c, std::size_t most) const {
    return std::min({text_.find_first_not_of(c), text_.size(), most});
  }

  void skip(std::size_t bytes) {
    column_ += utf8_length(text_) > 1 ? 1 : static_cast<std::int64_t>(bytes);
    if (text_[0] == '\n') {
      ++line_;
      column_ = 1;
      dots_ = 0;
    }
    text_.remove_prefix(bytes);
  }

  Problem problem(const std::string& message, const char* advice) const {
    return {{file_, line_, column_}, "not valid TOML here: " + message, advice};
  }

  Problem unclosed() const {
    const std::string mark(state_ == State::multi ? 3 : 1, quote_);
    return {{file_, opened_line_, opened_column_},
            "not valid TOML: this text is not closed",
            "put a " + mark + " at its end"};
  }

  std::string_view text_;
  std::string file_;
  State state_ = State::plain;
  Word word_ = Word::none;
  char quote_ = 0;
  std::int64_t line_ = 1, column_ = 1, dots_ = 0;
  std::int64_t opened_line_ = 1, opened_column_ = 1;  // of the last quote
};

// Empty after a problem.
toml::table parse(std::string_view text, const std::string& file, std::vector<Problem>& problems) {
  if (std::optional<Problem> problem = Scan(text, file).run()) {
    problems.push_back(std::move(*problem));
    return {};
  }
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    problems.push_back(syntax_problem(e, file));
    return {};
  }
}

}  // namespace

Tree read_toml_tree(std::string_view text, const std::string& file) {
  Tree out;
  out.root = convert_tree(parse(text, file, out.problems), {file}, file);
  return out;
}

bool Node::is_tables() const {
  return value.kind == Value::Kind::list && !children.empty() &&
         children.size() == value.items.size();
}

Document read_toml(std::string_view text, const std::string& file) {
  Document out;
  const toml::table root = parse(text, file, out.problems);
  for (const auto& [name, node] : root) {
    const Place at = place(name.source(), file);
    const toml::table* section = node.as_table();
    if (section == nullptr) {
      out.entries.push_back({.section = "",
                             .key = std::string(name.str()),
                             .value = convert(node),
                             .section_place = at,
                             .key_place = at,
                             .value_place = place(node.source(), file)});
      continue;
    }
    out.sections.push_back({.section = std::string(name.str()),
                            .key = "",
                            .value = {},
                            .section_place = at,
                            .key_place = at,
                            .value_place = at});
    for (const auto& [key, value] : *section)
      out.entries.push_back({.section = std::string(name.str()),
                             .key = std::string(key.str()),
                             .value = convert(value),
                             .section_place = at,
                             .key_place = place(key.source(), file),
                             .value_place = place(value.source(), file)});
  }
  return out;
}

Value read_value(std::string_view text) {
  Value plain;
  plain.kind = Value::Kind::text;
  plain.text = text;
  if (text.size() > 65536 || text.find_first_of("\n\r") != text.npos || Scan(text, "").run())
    return plain;
  try {
    const toml::table root = toml::parse("v = " + std::string(text));
    const toml::node* node = root.get("v");
    return root.size() == 1 && node != nullptr && !node->is_table() ? convert(*node) : plain;
  } catch (const toml::parse_error&) {
    return plain;
  }
}

std::string set_text(const Value& v) {
  const auto quoted = [](const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\')
        out += std::string("\\") + c;
      else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
      else
        out += c;
    }
    return out + "\"";
  };
  if (v.kind == Value::Kind::text) {  // without quotes where nothing else could be meant
    const bool plain = !v.text.empty() && v.text.find_first_of("\"'\n\r\t") == v.text.npos &&
                       v.text.front() != ' ' && v.text.back() != ' ';
    const Value again = plain ? read_value(v.text) : Value{};
    return again.kind == Value::Kind::text && again.text == v.text ? v.text : quoted(v.text);
  }
  if (v.kind != Value::Kind::list) return describe(v);
  std::vector<std::string> items;
  for (const Value& item : v.items)
    items.push_back(item.kind == Value::Kind::text ? quoted(item.text) : set_text(item));
  return "[" + join(items, ",") + "]";
}

std::string number_text(double number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".en") == text.npos ? text + ".0" : text;
}

std::string describe(const Value& v) {
  switch (v.kind) {
    case Value::Kind::boolean:
      return v.boolean ? "true" : "false";
    case Value::Kind::integer:
      return std::to_string(v.integer);
    case Value::Kind::real:
      return number_text(v.real);
    case Value::Kind::text:
      return v.text.empty() ? "an empty text" : "\"" + clean(v.text, 60) + "\"";
    case Value::Kind::list:
      return v.items.empty() ? "an empty list" : fmt::format("a list of {}", v.items.size());
    case Value::Kind::table:
      return "a table";
    case Value::Kind::other:
      return v.text;
  }
  return "";
}

}  // namespace tessera::config
