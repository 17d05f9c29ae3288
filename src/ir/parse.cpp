// Reading the text form back. One line is one input, equation or output; errors carry line and
// column.
#include <algorithm>
#include <charconv>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "ir/program.h"

namespace tessera::ir {
namespace {

constexpr std::int64_t most_samples = 1000000000000;  // in a part of a batch

// A cursor over one line.
class Line {
 public:
  Line(std::string_view text, int number) : text_(text), number_(number) {}

  // As fail, but points at the token that was just read.
  [[noreturn]] void reject(const std::string& expected) {
    at_ = token_;
    fail(expected);
  }
  [[noreturn]] void fail(const std::string& expected) const {
    std::string found(text_.substr(std::min(at_, text_.size()), 20));
    std::replace_if(
        found.begin(), found.end(),
        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; },
        '?');  // for a terminal
    throw Error(ErrorKind::usage, "expected " + expected + ", found '" + found + "'",
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
  bool peek(char c) {
    space();
    return at_ < text_.size() && text_[at_] == c;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("'" + std::string(token) + "'");
  }
  std::string word() {
    space();
    token_ = at_;
    while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
    if (token_ == at_) fail("a name");
    return std::string(text_.substr(token_, at_ - token_));
  }
  // A word only if "=" follows directly: the key of an attribute.
  std::string key() {
    space();
    std::size_t end = at_;
    while (end < text_.size() && is_name_char(text_[end])) ++end;
    if (end == at_ || end >= text_.size() || text_[end] != '=') return {};
    token_ = at_;
    std::string k(text_.substr(at_, end - at_));
    at_ = end + 1;
    return k;
  }
  // Up to this character or the end of the line, without spaces at either end.
  std::string until(char c) {
    space();
    const std::size_t end = std::min(text_.find(c, at_), text_.size());
    std::string r(text_.substr(at_, end - at_));
    while (end < text_.size() && r.ends_with(' ')) r.pop_back();
    at_ = end;
    return r;
  }

  template <class T>
  void number(T& value) {
    space();
    token_ = at_;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc{}) fail("a number");
    at_ = static_cast<std::size_t>(end - text_.data());
  }
  void value(int& v) { number(v); }
  void value(std::int64_t& v) { number(v); }
  void value(double& v) { number(v); }
  void value(bool& v) {
    if (accept("true"))
      v = true;
    else if (accept("false"))
      v = false;
    else
      fail("true or false");
  }
  void value(DType& v) {
    const std::string text = word();
    try {
      v = parse_dtype(text);
    } catch (const Error&) {
      reject("an element type");
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
    v.clear();
    expect("[");
    while (!accept("]")) {
      if (!v.empty()) expect(",");
      value(v.emplace_back());
    }
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0, token_ = 0;  // the cursor, and where the last token began
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
      if (line.accept("program "))
        header(line);
      else if (!started_)
        line.fail("'program NAME mesh(...)' before anything else");
      else if (line.accept("input "))
        input(line);
      else if (line.accept("output "))
        output(line);
      else
        equation(line);
      if (!line.done()) line.fail("the end of the line");
    }
    if (!started_)
      throw Error(ErrorKind::usage, "expected 'program NAME mesh(...)', found no line",
                  "program:1:1");
    return std::move(p_);
  }

 private:
  void header(Line& line) {
    if (started_) line.fail("one program in a text");
    started_ = true;
    p_.name = line.word();
    line.expect("mesh(");
    std::int64_t ranks = 1;
    while (!line.accept(")")) {
      if (!p_.mesh.axes.empty()) line.expect(",");
      Axis axis;
      axis.name = line.key();
      if (axis.name.empty()) line.fail("AXIS=SIZE:KIND");
      if (p_.mesh.find(axis.name) >= 0)
        line.reject("another name for the second axis " + axis.name);
      line.value(axis.size);
      if (axis.size < 1 || (ranks *= axis.size) > most_ranks)
        line.reject("an axis of at least one rank, and a mesh of at most " +
                    std::to_string(most_ranks));
      line.expect(":");
      if (line.accept("model"))
        axis.kind = Axis::model;
      else if (line.accept("sequence"))
        axis.kind = Axis::sequence;
      else if (line.accept("stage"))
        axis.kind = Axis::stage;
      else
        line.expect("data");
      while (line.peek('[')) {
        Shape& parts = axis.cuts.emplace_back();
        line.value(parts);
        if (parts.size() != static_cast<std::size_t>(axis.size) ||
            std::any_of(parts.begin(), parts.end(),
                        [](std::int64_t n) { return n < 0 || n > most_samples; }))
          line.reject("for each of " + std::to_string(axis.size) + " ranks a part from 0 to " +
                      std::to_string(most_samples));
      }
      p_.mesh.axes.push_back(std::move(axis));
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
      if (axis < 0) line.reject("an axis of the mesh");
      Place& place = t.at[static_cast<std::size_t>(axis)];
      if (place.kind != Place::R) line.reject("each axis once");
      line.expect(":");
      if (line.accept("P")) {
        place.kind = Place::P;
      } else if (line.accept("@")) {
        place.kind = Place::O;
        line.value(place.dim);
      } else {
        line.expect("S");
        place.kind = Place::S;
        line.value(place.dim);
      }
    }
    return t;
  }

  Var define(Line& line, std::string name) {
    if (vars_.contains(name)) line.reject("a name that is not taken");
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
    if (it == vars_.end()) line.reject("a value that is defined above");
    return it->second;
  }

  void input(Line& line) {
    Input in;
    in.var = define(line, line.word());
    if (line.accept("param"))
      in.kind = Input::param;
    else if (line.accept("state"))
      in.kind = Input::state;
    else if (line.accept("scalar"))
      in.kind = Input::scalar;
    else
      line.expect("batch");
    line.value(in.name);
    if (line.accept("(")) {
      do in.dims.push_back(line.word());
      while (line.accept(","));
      line.expect(")");
    }
    role(line, in.role, in.of);
    home(line, in);
    p_.inputs.push_back(std::move(in));
  }

  static void home(Line& line, Input& in) {
    if (!line.accept("on")) return;
    const std::optional<Home> known = parse_home(line.word());
    if (!known || *known == Home::device) line.reject("host or file");
    in.home = *known;
    line.expect("by");
    line.value(in.piece);
    if (in.piece <= 0) line.reject("a number of bytes");
  }

  static void role(Line& line, Role& role, std::string& of) {
    if (!line.accept("as")) return;
    const std::optional<Role> known = parse_role(line.word());
    if (!known) line.reject("a role");
    role = *known;
    if (!of_something(role)) return;
    line.expect("of");
    line.value(of);
  }

  void output(Line& line) {
    Output out;
    line.value(out.name);
    line.expect("=");
    out.var = use(line);
    if (line.accept("updates")) line.value(out.updates);
    role(line, out.role, out.of);
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
    if (!op) line.reject("an op");
    eqn.op = *op;
    eqn.attrs = default_attrs(*op);
    std::set<std::string> given;
    for (std::string key; !(key = line.key()).empty();) {
      bool known = false;
      if (!given.insert(key).second) line.reject("each attribute once");
      std::visit(
          [&]<class A>(A& a) {
            A::fields(a, [&](const char* name, auto& value) {
              if (key == name) {
                line.value(value);
                known = true;
              }
            });
          },
          eqn.attrs);
      if (!known) line.reject("an attribute of " + std::string(name(*op)));
    }
    while (!line.done() && !line.accept("#")) eqn.in.push_back(use(line));
    if (line.accept("~"))
      eqn.phase = Phase::backward;
    else if (line.accept("^"))
      eqn.phase = Phase::recompute;
    else if (line.accept("%"))
      eqn.phase = Phase::weight;
    else if (line.accept("!"))
      eqn.phase = Phase::update;
    eqn.scope = line.until('@');
    if (line.accept("@")) {
      line.value(eqn.stage);
      line.expect(".");
      line.value(eqn.micro);
      if (std::min(eqn.stage, eqn.micro) < 0)
        line.reject("a stage and a micro-batch, counted from 0");
    }
    p_.eqns.push_back(std::move(eqn));
  }

  static constexpr std::int64_t most_ranks = 1 << 20;

  Program p_;
  bool started_ = false;
  std::unordered_map<std::string, Var> vars_;
};

}  // namespace

Program parse(std::string_view text) { return Reader().read(text); }

}  // namespace tessera::ir
