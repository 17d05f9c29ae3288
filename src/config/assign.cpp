// From a value as written to a field of Config, and back to text: one overload per type that a
// field can have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/fields.h"
#include "config/later.h"

namespace tessera::config {
namespace {

using Kind = Value::Kind;
using Result = std::optional<Refusal>;
constexpr std::size_t longest_text = 4096;

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

std::string bound(double v) {
  return std::abs(v) < 1e7 && v == std::floor(v) ? fmt::format("{:.0f}", v) : fmt::format("{}", v);
}

std::string range_text(const Accepts& a) {
  if (!std::isfinite(a.low)) return "";
  if (a.above_low) return "more than " + bound(a.low) + ", at most " + bound(a.high);
  if (a.below_high) return "at least " + bound(a.low) + ", less than " + bound(a.high);
  return bound(a.low) + " to " + bound(a.high);
}

bool inside(const Accepts& a, double v) {
  return std::isfinite(v) && (a.above_low ? v > a.low : v >= a.low) &&
         (a.below_high ? v < a.high : v <= a.high);
}

Refusal wrong_type(const Field& f, std::string_view expected, const Value& v,
                   std::string advice = "") {
  return {f.name() + ": expected " + std::string(expected) + ", found " + describe(v),
          std::move(advice)};
}
Refusal out_of_range(const Field& f, const Value& v) {
  return {f.name() + " = " + describe(v) + " is out of range", "choose " + range_text(f.accepts)};
}

Result whole(const Field& f, const Value& v, std::int64_t& out,
             std::string_view expected = "a whole number") {
  if (v.kind == Kind::text && !f.accepts.word.empty() && v.text == f.accepts.word) {
    out = -1;
    return {};
  }
  if (v.kind == Kind::real && std::abs(v.real) < 1e15 && v.real == std::floor(v.real))
    return wrong_type(f, expected, v, fmt::format("write {:.0f}", v.real));
  if (v.kind != Kind::integer) return wrong_type(f, expected, v);
  if (!inside(f.accepts, static_cast<double>(v.integer))) return out_of_range(f, v);
  out = v.integer;
  return {};
}

Result number(const Field& f, const Value& v, double& out) {
  if (v.kind != Kind::integer && v.kind != Kind::real) return wrong_type(f, "a number", v);
  const double d = v.kind == Kind::integer ? static_cast<double>(v.integer) : v.real;
  if (!std::isfinite(d)) return wrong_type(f, "a finite number", v);
  if (!inside(f.accepts, d)) return out_of_range(f, v);
  out = d;
  return {};
}

Result choice(const Field& f, const Value& v, std::string& out) {
  std::vector<std::string> words = split(f.accepts.choices, '|');
  const std::string all = alternatives(words);
  for (std::string& word : split(f.accepts.later, '|')) words.push_back(std::move(word));
  const std::vector<std::string> given =
      f.accepts.several ? split(v.text + ",", ',') : std::vector<std::string>{v.text};
  const auto unknown = std::find_if(given.begin(), given.end(), [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) == words.end();
  });
  if (unknown != given.end()) {
    const std::string near = unknown->size() <= 64 ? nearest(*unknown, words) : "";
    return Refusal{f.name() + " = " + describe(v) + " is not known",
                   (near.empty() || all == near ? "" : "did you mean " + near + "? ") + "choose " +
                       all +
                       (f.accepts.several ? ", or several of them with commas between them" : "")};
  }
  out = v.text;
  return {};
}

Result text(const Field& f, const Value& v, std::string& out) {
  if (v.kind != Kind::text)
    return wrong_type(f, f.accepts.choices.empty() ? "a text" : "a word", v,
                      v.kind == Kind::integer ? "put it in quotes" : "");
  if (v.text.empty())
    return wrong_type(f, "a text", v, f.accepts.optional ? "leave the key out instead" : "");
  if (!is_utf8(v.text)) return Refusal{f.name() + ": the text is not valid UTF-8", ""};
  if (v.text.size() > longest_text)
    return Refusal{fmt::format("{}: the text has {} bytes", f.name(), v.text.size()),
                   fmt::format("at most {} are accepted", longest_text)};
  if (std::any_of(v.text.begin(), v.text.end(),
                  [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return Refusal{f.name() + ": the text has a control character", ""};
  if (!f.accepts.choices.empty()) return choice(f, v, out);
  out = v.text;
  return {};
}

Result wholes(const Field& f, const Value& v, std::vector<std::int64_t>& out) {
  static constexpr std::string_view expected = "a list of whole numbers";
  if (v.kind != Kind::list)
    return wrong_type(f, expected, v,
                      v.kind == Kind::integer ? fmt::format("write [{}]", v.integer) : "");
  if (v.items.size() > f.accepts.longest)
    return wrong_type(f, fmt::format("at most {} numbers", f.accepts.longest), v);
  std::vector<std::int64_t> list(v.items.size());
  for (std::size_t i = 0; i < list.size(); ++i)
    if (Result r = whole(f, v.items[i], list[i], expected)) return r;
  out = std::move(list);
  return {};
}

Result image(const Field& f, const Value& v, Image out) {
  static constexpr std::string_view expected = "a whole number or [height, width]";
  if (v.kind != Kind::list) {
    Result refused = whole(f, v, *out.h, expected);
    if (!refused) *out.w = *out.h;
    return refused;
  }
  if (v.items.size() != 2) return wrong_type(f, expected, v);
  std::int64_t h = 0, w = 0;
  if (Result r = whole(f, v.items[0], h, expected)) return r;
  if (Result r = whole(f, v.items[1], w, expected)) return r;
  *out.h = h;
  *out.w = w;
  return {};
}

Result span(const Field& f, const Value& v, Span& out) {
  static constexpr std::string_view expected = "a number of steps or a percentage such as \"5%\"";
  if (v.kind != Kind::text) {
    std::int64_t steps = 0;
    if (Result r = whole(f, v, steps, expected)) return r;
    out = {steps, 0.0, false};
    return {};
  }
  double percent = 0;
  const char* end = v.text.data() + v.text.size();
  const auto [stop, code] = std::from_chars(v.text.data(), end, percent);
  if (code != std::errc() || stop + 1 != end || *stop != '%' || !std::isfinite(percent))
    return wrong_type(f, expected, v);
  if (percent < 0 || percent > 100 || (percent == 0 && f.accepts.low > 0))
    return Refusal{f.name() + " = " + describe(v) + " is out of range",
                   f.accepts.low > 0 ? "choose more than 0%, at most 100%" : "choose 0% to 100%"};
  out = {0, percent, true};
  return {};
}

Result pair(const Field& f, const Value& v, std::array<double, 2>& out) {
  if (v.kind != Kind::list || v.items.size() != 2) return wrong_type(f, "a list of two numbers", v);
  std::array<double, 2> two{};
  for (std::size_t i = 0; i < 2; ++i)
    if (Result r = number(f, v.items[i], two[i])) return r;
  out = two;
  return {};
}

Result list(const Field& f, const Value& v, std::vector<double>& out) {
  if (v.kind != Kind::list) return wrong_type(f, "a list of numbers", v);
  if (v.items.size() > f.accepts.longest)
    return wrong_type(f, fmt::format("at most {} numbers", f.accepts.longest), v);
  std::vector<double> numbers(v.items.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (Result r = number(f, v.items[i], numbers[i])) return r;
  out = std::move(numbers);
  return {};
}

Result list_or_word(const Field& f, const Value& v, ListOrWord& out) {
  if (v.kind == Kind::text && !v.text.empty()) {
    std::string word;
    const bool numbers =
        v.text.find(',') != v.text.npos && v.text.find_first_not_of("0123456789., ") == v.text.npos;
    if (numbers && v.text.size() <= 64)
      return wrong_type(f, "a list of numbers", v, "write [" + v.text + "]");
    if (Result r = choice(f, v, word)) return r;
    out = {{}, word};
    return {};
  }
  if (v.kind != Kind::list)
    return wrong_type(f, "a list of numbers or " + alternatives(split(f.accepts.choices, '|')), v);
  ListOrWord numbers;
  if (Result r = list(f, v, numbers.list)) return r;
  out = std::move(numbers);
  return {};
}

// A basic string. What would steer a terminal is an escape in it, which reads back as the same
// text.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, utf8_length(text)));
    if (character == "\"" || character == "\\") out += '\\';
    out += is_printable(character) ? std::string(character)
                                   : fmt::format("\\U{:08x}", code_of(character));
    text.remove_prefix(character.size());
  }
  return out + "\"";
}

std::string numbers(const double* first, std::size_t n) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < n; ++i) words.push_back(number_text(first[i]));
  return fmt::format("[{}]", join(words, ", "));
}

}  // namespace

Result assign(const Field& f, Config& config, const Value& v) {
  const bool yes = v.kind == Kind::boolean ? v.boolean : v.kind == Kind::text && v.text == "true";
  if (!f.accepts.yes.empty() &&
      (v.kind == Kind::boolean || (v.kind == Kind::text && (yes || v.text == "false"))))
    return assign(f, config, read_value(yes ? f.accepts.yes : f.accepts.no));
  return std::visit(Overload{
                        [&](bool* out) -> Result {
                          if (v.kind != Kind::boolean) return wrong_type(f, "true or false", v);
                          *out = v.boolean;
                          return {};
                        },
                        [&](std::int64_t* out) { return whole(f, v, *out); },
                        [&](double* out) { return number(f, v, *out); },
                        [&](std::string* out) { return text(f, v, *out); },
                        [&](std::vector<std::int64_t>* out) { return wholes(f, v, *out); },
                        [&](Image out) { return image(f, v, out); },
                        [&](Span* out) { return span(f, v, *out); },
                        [&](std::array<double, 2>* out) { return pair(f, v, *out); },
                        [&](ListOrWord* out) { return list_or_word(f, v, *out); },
                        [&](std::vector<double>* out) { return list(f, v, *out); },
                    },
                    f.at(config));
}

std::string toml_value(const Field& f, const Config& config) {
  // `at` gives a mutable reference; nothing is written through it.
  return std::visit(
      Overload{
          [](bool* v) -> std::string { return *v ? "true" : "false"; },
          [&](std::int64_t* v) {
            return *v < 0 && !f.accepts.word.empty() ? in_quotes(f.accepts.word)
                                                     : std::to_string(*v);
          },
          [](double* v) { return number_text(*v); },
          [](std::string* v) { return in_quotes(*v); },
          [](std::vector<std::int64_t>* v) { return fmt::format("[{}]", fmt::join(*v, ", ")); },
          [](Image v) {
            return *v.h == *v.w ? std::to_string(*v.h) : fmt::format("[{}, {}]", *v.h, *v.w);
          },
          [](Span* v) {
            return v->is_percent ? fmt::format("\"{}%\"", v->percent) : std::to_string(v->steps);
          },
          [](std::array<double, 2>* v) { return numbers(v->data(), 2); },
          [](ListOrWord* v) {
            return v->word.empty() ? numbers(v->list.data(), v->list.size()) : in_quotes(v->word);
          },
          [](std::vector<double>* v) { return numbers(v->data(), v->size()); },
      },
      f.at(const_cast<Config&>(config)));
}

std::string accepts_text(const Field& f) {
  Config scratch;
  const std::string range = range_text(f.accepts);
  const auto with_range = [&](std::string kind) {
    return range.empty() ? kind : kind + ", " + range;
  };
  std::string words = alternatives(split(f.accepts.choices, '|'));
  if (!f.accepts.later.empty())
    words += " (later: " + join(split(f.accepts.later, '|'), ", ") + ")";
  const std::string of_kind = std::visit(
      Overload{
          [](bool*) -> std::string { return "true or false"; },
          [&](std::int64_t*) {
            return with_range("whole number") +
                   (f.accepts.word.empty() ? "" : "; or " + std::string(f.accepts.word));
          },
          [&](double*) { return with_range("number"); },
          [&](std::string*) {
            if (f.accepts.several) words += "; or one for each rank";
            return words.empty() ? std::string("text") : words;
          },
          [&](std::vector<std::int64_t>*) { return with_range("list of whole numbers"); },
          [&](Image) { return with_range("whole number or [height, width]"); },
          [&](Span*) { return with_range("steps or \"N%\""); },
          [&](std::array<double, 2>*) { return with_range("two numbers"); },
          [&](ListOrWord*) { return with_range("list of numbers") + "; or " + words; },
          [&](std::vector<double>*) {
            return with_range(fmt::format("list of at most {} numbers", f.accepts.longest));
          },
      },
      f.at(scratch));
  return f.accepts.yes.empty()
             ? of_kind
             : of_kind + fmt::format("; true: {}, false: {}", f.accepts.yes, f.accepts.no);
}

std::string keys_markdown() {
  const Config standard;
  std::string out;
  // A key that the default model does not read shows the default of the first family that does.
  const auto defaults_for = [&](const Field& f) {
    Config c = standard;
    for (const models::Family* family : models::families())
      if (!applies(f, c.model) && family->has(f.key)) c.model = models::preset(family->preset);
    return c;
  };
  for (const std::string& section : section_names()) {
    out += fmt::format("{}### [{}]\n\n| key | accepts | default | meaning |\n|---|---|---|---|\n",
                       out.empty() ? "" : "\n", section);
    for (const Field& f : fields()) {
      if (f.section != section) continue;
      const std::string value = f.accepts.standard.empty() ? toml_value(f, defaults_for(f))
                                                           : std::string(f.accepts.standard);
      out +=
          fmt::format("| `{}` | {} | {} | {} |\n", f.key, accepts_text(f),
                      value == "\"\"" ? "" : fmt::format("`{}`", value),
                      std::string(f.doc) + (comes_later(f.name()) ? " (not in this version)" : ""));
    }
  }
  return out;
}

}  // namespace tessera::config
