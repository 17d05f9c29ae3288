#include "study/claim_expression.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "config/problem.h"

namespace tessera::study {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// A reader of one text; `at` is where it stands.
class Reader {
 public:
  Reader(std::string_view text, std::string_view what) : text_(text), what_(what) {
    if (text.size() > kLongestExpression)
      throw Error(ErrorKind::usage, what_ + ": " + std::to_string(text.size()) +
                                        " bytes are more than the " +
                                        std::to_string(kLongestExpression) + " allowed");
    skip();
  }

  Expression expression() {
    sum();
    if (at_ < text_.size()) refuse("expected +, -, *, / or the end");
    return std::move(out_);
  }

  Condition condition() {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    Condition c{-infinity, infinity};
    if (at_ == text_.size()) refuse("expected >= NUMBER, >, <=, <, or between NUMBER and NUMBER");
    if (is_word(peek())) {
      if (word() != "between") refuse_from(0, "expected >=, >, <=, < or between");
      c.least = signed_number();
      if (word() != "and") refuse("expected: between NUMBER and NUMBER");
      c.most = signed_number();
      if (c.least > c.most) refuse_from(0, "the smaller number comes first");
    } else {
      const bool more = peek() == '>';
      if (!more && peek() != '<') refuse("expected >=, >, <=, < or between");
      ++at_;
      const bool open = at_ == text_.size() || text_[at_] != '=';
      if (!open) ++at_;
      skip();
      (more ? c.least : c.most) = signed_number();
      (more ? c.least_open : c.most_open) = open;
    }
    if (at_ < text_.size()) refuse("expected the end");
    return c;
  }

 private:
  std::string_view text_;
  std::string what_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Expression out_;

  [[noreturn]] void refuse_from(std::size_t at, const std::string& message) const {
    std::string found = at < text_.size() ? ", found " + config::clean(text_.substr(at), 30) : "";
    throw Error(ErrorKind::usage,
                what_ + ", column " + std::to_string(at + 1) + ": " + message + found);
  }
  [[noreturn]] void refuse(const std::string& message) const { refuse_from(at_, message); }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    skip();
    return true;
  }
  void need(char c) {
    if (!take(c)) refuse(std::string("expected ") + c);
  }
  std::string_view word() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view found = text_.substr(begin, at_ - begin);
    skip();
    return found;
  }
  double number() {
    double value = 0;
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || !std::isfinite(value)) refuse("expected a number");
    at_ += static_cast<std::size_t>(stop - begin);
    skip();
    return value;
  }
  double signed_number() {
    const bool minus = take('-');
    if (!is_digit(peek()) && peek() != '.') refuse("expected a number");
    return minus ? -number() : number();
  }

  void push(Expression::Do what, double number = 0, std::size_t count = 0) {
    out_.steps.push_back({what, number, count});
  }

  void deeper() {
    if (++depth_ > kDeepestExpression)
      refuse("more than " + std::to_string(kDeepestExpression) + " levels");
  }

  void sum() {
    product();
    while (true) {
      if (take('+')) {
        product();
        push(Expression::Do::add);
      } else if (take('-')) {
        product();
        push(Expression::Do::subtract);
      } else {
        return;
      }
    }
  }
  void product() {
    factor();
    while (true) {
      if (take('*')) {
        factor();
        push(Expression::Do::multiply);
      } else if (take('/')) {
        factor();
        push(Expression::Do::divide);
      } else {
        return;
      }
    }
  }
  void factor() {
    deeper();
    if (take('-')) {
      factor();
      push(Expression::Do::negate);
    } else if (take('(')) {
      sum();
      need(')');
    } else if (is_digit(peek()) || peek() == '.') {
      push(Expression::Do::number, number());
    } else if (is_word(peek())) {
      named();
    } else {
      refuse("expected a number, a quantity or (");
    }
    --depth_;
  }
  void named() {
    const std::size_t begin = at_;
    const std::string name(word());
    const bool least = name == "min", greatest = name == "max", absolute = name == "abs";
    if (!least && !greatest && !absolute) return quantity(begin, name);
    need('(');
    std::size_t count = 0;
    do {
      sum();
      ++count;
    } while (take(','));
    need(')');
    if (absolute && count != 1) refuse_from(begin, "abs takes one number");
    push(least      ? Expression::Do::least
         : greatest ? Expression::Do::greatest
                    : Expression::Do::absolute,
         0, count);
  }

  // Raw text up to one of `ends` outside of brackets, or what stands in quotes.
  std::string raw(std::string_view ends, const char* what) {
    skip();
    std::string found;
    if (peek() == '"') {
      const std::size_t close = text_.find('"', at_ + 1);
      if (close == text_.npos) refuse("the quotes are not closed");
      found = text_.substr(at_ + 1, close - at_ - 1);
      at_ = close + 1;
      skip();
    } else {
      const std::size_t begin = at_;
      int open = 0;
      for (; at_ < text_.size(); ++at_) {
        if (open == 0 && ends.find(text_[at_]) != ends.npos) break;
        if (text_[at_] == '[') ++open;
        if (text_[at_] == ']') --open;
        if (open < 0) refuse("there is no [ to this ]");
      }
      found = trimmed(text_.substr(begin, at_ - begin));
      if (found.empty()) refuse_from(begin, std::string("expected ") + what);
    }
    return found;
  }

  void quantity(std::size_t begin, const std::string& metric) {
    Quantity q;
    q.metric = metric;
    q.begin = begin;
    if (take('[')) {
      const std::size_t from = at_;
      while (at_ < text_.size() && peek() != ']') ++at_;
      q.row = trimmed(text_.substr(from, at_ - from));
      need(']');
      if (q.row.empty()) refuse_from(from, "expected the name of a row");
    }
    if (peek() != '(') refuse("expected (PART; KEY=VALUE, ...) after " + config::clean(metric));
    need('(');
    q.part = raw(";)", "the name of a part");
    if (take(';')) {
      do {
        const std::size_t from = at_;
        const std::string key = raw("=,;)", "KEY=VALUE");
        if (!take('=')) refuse_from(from, "expected KEY=VALUE");
        std::string value = raw(",)", "a value");
        if (key == "repeat") {
          if (value != "median" && value != "mean" && value != "min" && value != "max")
            refuse_from(from, "repeat is median, mean, min or max");
          q.repeat = value;
          continue;
        }
        if (std::any_of(q.where.begin(), q.where.end(),
                        [&](const auto& w) { return w.first == key; }))
          refuse_from(from, "this key is there twice");
        q.where.emplace_back(key, std::move(value));
      } while (take(','));
    }
    if (peek() != ')') refuse("expected )");
    q.end = at_ + 1;
    need(')');
    push(Expression::Do::quantity, 0, out_.quantities.size());
    out_.quantities.push_back(std::move(q));
  }
};

}  // namespace

double Expression::evaluate(std::span<const double> values) const {
  std::vector<double> stack;
  auto pop = [&] {
    CHECK(!stack.empty(), "an expression takes more numbers than it has");
    const double top = stack.back();
    stack.pop_back();
    return top;
  };
  for (const Step& s : steps) {
    double right = 0;
    switch (s.what) {
      case Do::number:
        stack.push_back(s.number);
        break;
      case Do::quantity:
        stack.push_back(values[s.count]);
        break;
      case Do::negate:
        stack.push_back(-pop());
        break;
      case Do::absolute:
        stack.push_back(std::abs(pop()));
        break;
      case Do::add:
        right = pop();
        stack.push_back(pop() + right);
        break;
      case Do::subtract:
        right = pop();
        stack.push_back(pop() - right);
        break;
      case Do::multiply:
        right = pop();
        stack.push_back(pop() * right);
        break;
      case Do::divide:
        right = pop();
        stack.push_back(pop() / right);
        break;
      case Do::least:
      case Do::greatest: {
        double best = pop();
        for (std::size_t i = 1; i < s.count; ++i) {
          const double other = pop();
          // A value that is not a number stays so: nothing can be said of it.
          if (std::isnan(other) || std::isnan(best))
            best = std::numeric_limits<double>::quiet_NaN();
          else
            best = s.what == Do::least ? std::min(best, other) : std::max(best, other);
        }
        stack.push_back(best);
        break;
      }
    }
  }
  return pop();
}

bool Condition::holds(double number) const {
  return (least_open ? number > least : number >= least) &&
         (most_open ? number < most : number <= most);
}

Expression parse_expression(std::string_view text) { return Reader(text, "number").expression(); }
Condition parse_condition(std::string_view text) { return Reader(text, "holds").condition(); }

}  // namespace tessera::study
