// Reading the text form back. One line is one input, equation or output; errors carry line and column.
#include <charconv>
#include <unordered_map>

#include "base/check.h"
#include "ir/program.h"

namespace tessera::ir {
namespace {

// A cursor over one line.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), number_(number) {}

  [[noreturn]] void fail(const std::string& expected) const {
    throw Error(ErrorKind::usage, "expected " + expected + ", found '" + std::string(text_.substr(std::min(at_, text_.size()), 20)) + "'",
                "program:" + std::to_string(number_) + ":" + std::to_string(at_ + 1));
  }
  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool done() {
    space();
    return at_ >= text_.size();
  }
  bool accept(std::string_view token) {
    space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("'" + std::string(token) + "'");
  }
  static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '~' || c == '\'' || c == '/';
  }
  std::string word() {
    space();
    const std::size_t start = at_;
    while (at_ < text_.size() && word_char(text_[at_])) ++at_;
    if (start == at_) fail("a name");
    return std::string(text_.substr(start, at_ - start));
  }
  // A word only if "=" follows directly: the key of an attribute.
  std::string key() {
    space();
    std::size_t end = at_;
    while (end < text_.size() && word_char(text_[end])) ++end;
    if (end == at_ || end >= text_.size() || text_[end] != '=') return {};
    std::string k(text_.substr(at_, end - at_));
    at_ = end + 1;
    return k;
  }
  std::string rest() {
    space();
    std::string r(text_.substr(at_));
    at_ = text_.size();
    return r;
  }

  template <class T>
  void number(T& value) {
    space();
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("a number");
    at_ = static_cast<std::size_t>(end - text_.data());
  }
  void value(int& v) { number(v); }
  void value(std::int64_t& v) { number(v); }
  void value(double& v) { number(v); }
  void value(bool& v) {
    if (accept("true")) v = true;
    else if (accept("false")) v = false;
    else fail("true or false");
  }
  void value(DType& v) {
    const std::size_t start = at_;
    try {
      v = parse_dtype(word());
    } catch (const Error&) {
      at_ = start;
      fail("an element type");
    }
  }
  void value(std::optional<DType>& v) {
    v = DType::f32;
    value(*v);
  }
  void value(std::string& v) {
    expect("\"");
    const auto end = text_.find('"', at_);
    if (end == text_.npos) fail("a closing quote");
    v = std::string(text_.substr(at_, end - at_));
    at_ = end + 1;
  }
  template <class T>
  void value(std::vector<T>& v) {
    expect("[");
    while (!accept("]")) {
      if (!v.empty()) expect(",");
      value(v.emplace_back());
    }
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  int number_;
};

class Reader {
 public:
  Program read(std::string_view text) {
    for (int number = 1; !text.empty(); ++number) {
      const auto end = std::min(text.find('\n'), text.size());
      Line line(text.substr(0, end), number);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.done() || line.accept("//")) continue;
      if (line.accept("program ")) header(line);
      else if (line.accept("input ")) input(line);
      else if (line.accept("output ")) output(line);
      else equation(line);
      if (!line.done()) line.fail("the end of the line");
    }
    return std::move(p_);
  }

 private:
  void header(Line& line) {
    p_.name = line.word();
    line.expect("mesh(");
    while (!line.accept(")")) {
      if (!p_.mesh.axes.empty()) line.expect(",");
      Axis& axis = p_.mesh.axes.emplace_back();
      axis.name = line.key();
      line.value(axis.size);
      if (axis.size < 1) line.fail("an axis of at least one rank");
      line.expect(":");
      if (line.accept("model")) axis.kind = Axis::model;
      else line.expect("data");
    }
  }

  Type type(Line& line) {
    Type t;
    line.value(t.dtype);
    line.value(t.shape);
    if (!line.accept("{")) return t;
    t.at.resize(p_.mesh.axes.size());
    while (!line.accept("}")) {
      const int axis = p_.mesh.find(line.word());
      if (axis < 0) line.fail("an axis of the mesh");
      line.expect(":");
      Place& place = t.at[static_cast<std::size_t>(axis)];
      if (line.accept("P")) {
        place.kind = Place::P;
      } else {
        line.expect("S");
        place.kind = Place::S;
        line.value(place.dim);
      }
    }
    return t;
  }

  Var define(Line& line, std::string name) {
    if (vars_.contains(name)) line.fail("a new name instead of " + name);
    line.expect(":");
    Type t = type(line);
    const Var v = static_cast<Var>(p_.values.size());
    p_.values.push_back({name, std::move(t)});
    return vars_[std::move(name)] = v;
  }

  Var use(Line& line) {
    const std::string name = line.word();
    if (name == "_") return none;
    const auto it = vars_.find(name);
    if (it == vars_.end()) line.fail("a value defined above instead of " + name);
    return it->second;
  }

  void input(Line& line) {
    Input in;
    in.var = define(line, line.word());
    if (line.accept("param")) in.kind = Input::param;
    else if (line.accept("state")) in.kind = Input::state;
    else if (line.accept("scalar")) in.kind = Input::scalar;
    else line.expect("batch");
    line.value(in.name);
    if (line.accept("(")) {
      do in.dims.push_back(line.word());
      while (line.accept(","));
      line.expect(")");
    }
    p_.inputs.push_back(std::move(in));
  }

  void output(Line& line) {
    Output out;
    line.value(out.name);
    line.expect("=");
    out.var = use(line);
    if (line.accept("updates")) line.value(out.updates);
    p_.outputs.push_back(std::move(out));
  }

  void equation(Line& line) {
    Eqn eqn;
    do {
      std::string name = line.word();
      eqn.out.push_back(name == "_" ? none : define(line, std::move(name)));
    } while (line.accept(","));
    line.expect("=");
    const std::optional<Op> op = parse_op(line.word());
    if (!op) line.fail("an op");
    eqn.op = *op;
    eqn.attrs = default_attrs(*op);
    for (std::string key; !(key = line.key()).empty();) {
      bool known = false;
      std::visit([&]<class A>(A& a) { A::fields(a, [&](const char* name, auto& value) { if (key == name) line.value(value), known = true; }); },
                 eqn.attrs);
      if (!known) line.fail("an attribute of " + std::string(name(*op)) + " instead of " + key);
    }
    while (!line.done() && !line.accept("#")) eqn.in.push_back(use(line));
    if (line.accept("~")) eqn.phase = Phase::backward;
    else if (line.accept("^")) eqn.phase = Phase::recompute;
    else if (line.accept("!")) eqn.phase = Phase::update;
    eqn.scope = line.rest();
    p_.eqns.push_back(std::move(eqn));
  }

  Program p_;
  std::unordered_map<std::string, Var> vars_;
};

}  // namespace

Program parse(std::string_view text) { return Reader().read(text); }

}  // namespace tessera::ir
