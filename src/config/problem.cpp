#include "config/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tessera::config {
namespace {

constexpr std::size_t most_shown = 20;      // problems; a hostile file can have a hundred thousand
constexpr std::int64_t most_columns = 110;  // of a quoted line

// One printable character per entry.
std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (first == '\t')
      out.emplace_back(" ");  // one column, so that the caret lines up
    else if (n == 0 || !is_printable(text.substr(0, n)))
      out.emplace_back("?");
    else
      out.emplace_back(text.substr(0, n));
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

std::string_view line_of(std::string_view text, std::int64_t line) {
  for (; line > 1; --line) {
    const auto end = text.find('\n');
    if (end == text.npos) return {};
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

// "   14 | tp = 5\n      |      ^ advice"; a long line is shown around the caret.
std::string quote(const Problem& p, std::string_view text) {
  std::string_view line = line_of(text, p.place.line);
  if (p.place.line == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  const std::vector<std::string> all = characters(line);
  const auto size = static_cast<std::int64_t>(all.size());
  std::int64_t caret = std::clamp<std::int64_t>(p.place.column - 1, 0, size);
  const std::int64_t begin =
      size <= most_columns
          ? 0
          : std::clamp<std::int64_t>(caret - most_columns / 2, 0, size - most_columns);
  const std::int64_t end = std::min(size, begin + most_columns);
  std::string shown = begin > 0 ? "..." : "";
  caret += static_cast<std::int64_t>(shown.size()) - begin;
  for (std::int64_t i = begin; i < end; ++i) shown += all[static_cast<std::size_t>(i)];
  if (end < size) shown += "...";
  std::string out = fmt::format("\n{:>5} | {}\n      | {}^", p.place.line, shown,
                                std::string(static_cast<std::size_t>(caret), ' '));
  return p.advice.empty() ? out : out + " " + p.advice;
}

std::string place_text(const Place& place) {
  return place.line > 0
             ? fmt::format("{}:{}:{}", clean(place.origin, 200), place.line, place.column)
             : clean(place.origin, 120);
}

// The message with what stands under it, without its place.
std::string body(const Problem& p, const Texts& texts) {
  const auto text = texts.find(p.place.origin);
  if (p.place.line > 0 && text != texts.end()) return p.message + quote(p, text->second);
  return p.advice.empty() ? p.message : p.message + "; " + p.advice;
}

std::vector<Problem> ordered(std::vector<Problem> problems) {
  const auto rank = [](const Problem& p) {
    const int group = p.place.line > 0 ? 0 : !p.place.origin.empty() ? 1 : 2;
    return std::tuple(group, group == 0 ? std::string_view(p.place.origin) : std::string_view(),
                      p.place.line, p.place.column);
  };
  std::stable_sort(problems.begin(), problems.end(),
                   [&](const Problem& a, const Problem& b) { return rank(a) < rank(b); });
  return problems;
}

}  // namespace

ConfigError::ConfigError(std::vector<Problem> list, const Texts& texts, std::string help)
    : Error(ErrorKind::usage, "", "", std::move(help)), problems(ordered(std::move(list))) {
  CHECK(!problems.empty(), "a configuration error without a problem");
  message = body(problems[0], texts);
  for (std::size_t i = 1; i < std::min(problems.size(), most_shown); ++i) {
    const std::string at = place_text(problems[i].place);
    also.push_back((at.empty() ? "" : at + ": ") + body(problems[i], texts));
  }
  if (problems.size() > most_shown)
    also.push_back(fmt::format("{} more of the kind", problems.size() - most_shown));
  in(place_text(problems[0].place));  // sets `where` and composes what()
}

std::string in_one_line(const Problem& p) {
  const std::string at = place_text(p.place);
  return (at.empty() ? "" : at + ": ") + p.message + (p.advice.empty() ? "" : "; " + p.advice);
}

std::string clean(std::string_view text, std::size_t most) {
  const bool cut = text.size() > 4 * most;  // never decode a megabyte to show a line
  std::vector<std::string> all = characters(text.substr(0, cut ? 4 * most : text.size()));
  const bool longer = cut || all.size() > most;
  if (all.size() > most) all.resize(most);
  return join(all, "") + (longer ? "..." : "");
}

std::string alternatives(const std::vector<std::string>& words) {
  if (words.size() < 2) return join(words, "");
  return join({words.begin(), words.end() - 1}, ", ") + " or " + words.back();
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const auto end = text.find(separator);
    out.emplace_back(text.substr(0, end));
    text = end == text.npos ? std::string_view{} : text.substr(end + 1);
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

}  // namespace tessera::config
