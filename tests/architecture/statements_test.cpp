// No statement joins others with the comma operator: `a = 1, b = 2;` is two statements. Read off
// the tokens of the source text. Commas stay in the headers of `for`, in declarations, between
// template arguments, in macros, and inside parentheses (arguments, folds over packs).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <sstream>
#include <string_view>

#include "architecture/source.h"

namespace tessera::test {
namespace {

struct Token {
  std::string text;
  int line = 1;
  bool is_word() const {
    return std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_';
  }
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where the token at the beginning of `rest` ends; that of a comment and of white space, too.
std::size_t token_end(std::string_view rest, bool line_begins) {
  const auto after = [&](std::size_t at, std::size_t size) {
    return at == rest.npos ? rest.size() : at + size;
  };
  if (line_begins && rest[0] == '#') {
    std::size_t end = rest.find('\n');
    while (end != rest.npos && rest[end - 1] == '\\') end = rest.find('\n', end + 1);
    return after(end, 0);
  }
  if (rest.starts_with("//")) return after(rest.find('\n'), 0);
  if (rest.starts_with("/*")) return after(rest.find("*/", 2), 2);
  if (rest.starts_with("R\"")) {
    const std::size_t open = rest.find('(');
    const std::string close = ")" + std::string(rest.substr(2, open - 2)) + "\"";
    return after(rest.find(close, open), close.size());
  }
  std::size_t end = 1;
  if (rest[0] == '"' || rest[0] == '\'') {
    while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2 : 1;
    return end + 1;
  }
  if (in_word(rest[0])) {
    const bool number = std::isdigit(static_cast<unsigned char>(rest[0]));
    while (end < rest.size() && (in_word(rest[end]) || (number && rest[end] == '\''))) ++end;
    return end;
  }
  for (const std::string_view sign : {"<<<", ">>>", "::", "->", "&&", "||", "==", "!=", "<=", ">=",
                                      "++",  "--",  "<<", "+=", "-=", "*=", "/=", "|=", "&=", "^="})
    if (rest.starts_with(sign)) return sign.size();
  return 1;
}

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> out;
  int line = 1;
  bool line_begins = true;
  while (!text.empty()) {
    const std::string_view now = text.substr(0, token_end(text, line_begins));
    const bool space = std::isspace(static_cast<unsigned char>(now[0]));
    const bool skipped = space || now.starts_with("//") || now.starts_with("/*") || now[0] == '#';
    if (!skipped) out.push_back({std::string(now), line});
    line_begins = now[0] == '\n' || (line_begins && space);
    line += static_cast<int>(std::count(now.begin(), now.end(), '\n'));
    text.remove_prefix(now.size());
  }
  return out;
}

class Source {
 public:
  explicit Source(std::string_view text) : tokens_(tokens_of(text)), match_(tokens_.size()) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (opens(i)) open.push_back(i);
      if (!is(i, {")", "]", "}"}) || open.empty()) continue;
      match_[i] = open.back();
      match_[open.back()] = i;
      open.pop_back();
    }
  }

  // The lines of statements that commas join.
  std::vector<int> joined() const {
    std::vector<int> found;
    std::vector<std::size_t> starts = {0};  // of the statement in each bracket that is open
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (opens(i)) {
        starts.push_back(i + 1);
      } else if (is(i, {")", "]", "}"})) {
        if (starts.size() > 1) starts.pop_back();
        if (is(i, {"}"}) && ends_statement(i, starts.back())) starts.back() = i + 1;
      } else if (is(i, {";"})) {
        const std::size_t begin = behind_control(starts.back(), i);
        const bool header = starts.size() > 1 && is(starts.back() - 1, {"("});
        if (!header && begin < i && !is_declaration(begin, i) && has_comma(begin, i))
          found.push_back(tokens_[begin].line);
        if (!header) starts.back() = i + 1;
      }
    }
    return found;
  }

 private:
  bool is(std::size_t i, std::initializer_list<std::string_view> texts) const {
    return i < tokens_.size() && std::count(texts.begin(), texts.end(), tokens_[i].text) > 0;
  }
  bool opens(std::size_t i) const { return is(i, {"(", "[", "{"}); }
  std::size_t behind(std::size_t open) const { return std::max(match_[open], open) + 1; }

  // Whether a new statement begins behind this `}`: it closed no part of an expression, and not the
  // body of a type, which names may follow.
  bool ends_statement(std::size_t close, std::size_t begin) const {
    if (is(begin, {"struct", "class", "union", "enum"})) return false;
    const std::size_t next = close + 1;
    if (is(next, {"["})) return is(next + 1, {"["});
    return next < tokens_.size() &&
           (tokens_[next].is_word() || is(next, {"{", "*", "++", "--", "~", "::"}));
  }

  // Behind labels, if (...), else, for (...) and the like.
  std::size_t behind_control(std::size_t i, std::size_t end) const {
    while (i < end) {
      if (is(i, {"if", "for", "while", "switch", "catch"}))
        i = behind(i + (is(i + 1, {"constexpr"}) ? 2 : 1));
      else if (is(i, {"else", "do", "try"}))
        ++i;
      else if (is(i, {"{"}) || (is(i, {"["}) && is(i + 1, {"["})))
        i = behind(i);
      else if (is(i, {"case"}))
        i = colon_behind(i, end) + 1;
      else if (tokens_[i].is_word() && is(i + 1, {":"}))
        i += 2;
      else
        break;
    }
    return i;
  }
  std::size_t colon_behind(std::size_t i, std::size_t end) const {
    while (i < end && !is(i, {":"})) i = opens(i) ? behind(i) : i + 1;
    return i;
  }

  // Behind the `>` of template arguments that begin at this `<`; `i` itself where it compares.
  std::size_t behind_arguments(std::size_t i, std::size_t end, bool sure) const {
    int depth = 0;
    for (std::size_t at = i; at < end; at = opens(at) ? behind(at) : at + 1) {
      if (is(at, {"<"})) ++depth;
      if (is(at, {">"})) --depth;
      if (is(at, {">>>"})) depth -= 3;
      if (depth <= 0) return at + 1;
      if (is(at, {";", "="}) || (!sure && is(at, {"&&", "||"}))) break;
    }
    return i;
  }

  // A name of a type (or a specifier), and then another name.
  bool is_declaration(std::size_t i, std::size_t end) const {
    if (is(i, {"auto", "template", "alignas", "decltype", "struct", "class", "enum", "union"}))
      return true;
    if (is(i, {"return", "throw", "delete", "co_return", "co_yield"})) return false;
    if (is(i, {"::"})) ++i;
    if (!tokens_[i].is_word()) return false;
    for (++i; i < end; i += 2) {
      if (is(i, {"<"})) i = behind_arguments(i, end, false);
      if (!is(i, {"::"})) break;
    }
    while (is(i, {"*", "&", "&&", "const"})) ++i;
    return i < end && tokens_[i].is_word();
  }

  bool has_comma(std::size_t i, std::size_t end) const {
    std::size_t name = i;  // the end of a name that the statement begins with
    while (name < end && (tokens_[name].is_word() || is(name, {"::"}))) ++name;
    while (i < end) {
      std::size_t next = i + 1;
      if (is(i, {","})) return true;
      if (opens(i)) next = behind(i);
      if (is(i, {"<<<"}))
        while (next < end && !is(next, {">>>"})) next = opens(next) ? behind(next) : next + 1;
      if (is(i, {"<"}) && tokens_[i - 1].is_word()) {
        const std::size_t after = behind_arguments(i, end, i == name);
        if (after > i && is(after, {"(", "::", "{", ")", ",", ">", ".", ";", "<<<"})) next = after;
      }
      i = next;
    }
    return false;
  }

  std::vector<Token> tokens_;
  std::vector<std::size_t> match_;  // the other bracket
};

TEST(Architecture, JoinedStatementsAreFound) {
  for (const std::string joined : {"a = 1, b = 2;",
                                   "++a, f(b);",
                                   "f(), g();",
                                   "*a = 1, *b = 2;",
                                   "x.y = 1, x.z = 2;",
                                   "a::f<int, 2>(1), g();",
                                   "if (a) b(), c();",
                                   "else b(), c();",
                                   "for (;;) a(), b();",
                                   "while (a) b(), c();",
                                   "do a(), b(); while (c);",
                                   "case a: b(), c();",
                                   "default: b(), c();",
                                   "return a(), b;",
                                   "throw a, b;",
                                   "f([&] { a = 1, b = 2; });",
                                   "{ a; } b(), c();",
                                   "(void)a, (void)b;",
                                   "if (a) { b(); } (void)c, (void)d;",
                                   "a < b, c();",
                                   "const auto f = [&]<class T>(T) mutable { a = 1, b(); };",
                                   "a = T{1, 2}, b = {};",
                                   "#define X\na(), b();",
                                   "a ? b(), c() : d();",
                                   "k<<<1, 2>>>(a), f();"})
    EXPECT_EQ(Source("void f() {\n" + joined + "\n}").joined().size(), 1u) << joined;
  for (const std::string fine : {"for (a = 1, b = 2; a < b; ++a, --b) f(a, b);",
                                 "int a = 1, b = 2;",
                                 "auto [a, b] = c;",
                                 "const std::map<int, T> a, *b = nullptr;",
                                 "static T a{1, 2}, b(3, 4);",
                                 "T<1> a, b;",
                                 "a::b::c<d, e>(f, g);",
                                 "k<T, 2><<<1, 2>>>(a, b);",
                                 "(f(args), ...);",
                                 "a[1, 2] = {3, 4};",
                                 "a = \"b, c; d, e\" + 0x1'000;",
                                 "f([a, b](int c, int d) { return c; });",
                                 "struct { int a; } b, c;",
                                 "// a, b;",
                                 "R\"(a, b;)\";",
                                 "x = 'a'; y = ',';",
                                 "#define X(a) f(a), g(a);\n",
                                 "if (int a = 1, b = 2; a < b) c();",
                                 "T& a = b, c = d;",
                                 "struct A { A() : a(1), b{2} {} A() = default; int a, b; };",
                                 "f<a && b, c>(d);",
                                 "enum { a, b, c }; enum class B : int { d, e };",
                                 "unsigned a : 3, b : 4;"}) {
    EXPECT_TRUE(Source("void f() {\n" + fine + "\n}").joined().empty()) << fine;
  }
  EXPECT_EQ(Source("void f() {\n  a();\n  b(), c();\n}\n").joined(), std::vector<int>{3});
}

TEST(Architecture, StatementsAreNotJoinedByCommas) {
  for (const std::string folder : {"src", "tests", "fuzz"})
    for (const std::string& file : code_in(folder)) {
      std::ostringstream text;
      text << std::ifstream(kRoot / folder / file).rdbuf();
      for (const int line : Source(text.str()).joined())
        ADD_FAILURE() << folder << "/" << file << ":" << line
                      << ": a comma joins two statements: write two";
    }
}

}  // namespace
}  // namespace tessera::test
