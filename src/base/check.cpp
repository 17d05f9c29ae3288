#include "base/check.h"

#include <algorithm>
#include <numeric>

#include "base/printable.h"

namespace tessera {

Error::Error(ErrorKind k, std::string m, std::string w, std::string h)
    : kind(k), message(std::move(m)), where(std::move(w)), hint(std::move(h)) {
  compose();
}

Error& Error::in(std::string_view outer) {
  where = where.empty() ? std::string(outer) : std::string(outer) + ": " + where;
  compose();
  return *this;
}

Error& Error::and_also(std::string problem) {
  also.push_back(std::move(problem));
  compose();
  return *this;
}

namespace {

// Whether a further line of a message is one of ours: it begins with three blanks, or quotes a file
// ("  120 | tp = 5").
bool is_own_line(std::string_view rest) {
  if (rest.starts_with("   ")) return true;
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::size_t digits = rest.find_first_not_of("0123456789");
  return digits != rest.npos && digits > 0 && rest.substr(digits).starts_with(" | ");
}

// No name that came from outside begins a line of its own: other line ends are shown, not obeyed.
std::string shown_message(std::string_view message) {
  std::string out;
  for (std::size_t begin = 0, at = 0; at <= message.size(); ++at) {
    const bool end = at == message.size();
    if (!end && (message[at] != '\n' || !is_own_line(message.substr(at + 1)))) continue;
    out += (begin == 0 ? "" : "\n") + printable(message.substr(begin, at - begin), message.npos);
    begin = at + 1;
  }
  return out;
}

}  // namespace

void Error::compose() {
  const auto line = [](const std::string& text) { return printable(text, text.npos); };
  text_ = where.empty() ? shown_message(message) : line(where) + ": " + shown_message(message);
  for (const std::string& other : also) text_ += "\n   also: " + shown_message(other);
  if (!hint.empty()) text_ += "\n   help: " + line(hint);
}

void fail_check(const char* condition, const std::string& message, const char* file, int line) {
  std::string_view path(file);
  if (auto at = path.rfind("src/"); at != path.npos) path.remove_prefix(at);
  throw Error(ErrorKind::internal, message + " (expected " + condition + ")",
              std::string(path) + ":" + std::to_string(line));
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : std::string(separator)) + word;
  return out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_cost = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    std::vector<std::size_t> row(name.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= name.size(); ++j) {
        const std::size_t change = diagonal + (word[i - 1] != name[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
      }
    }
    if (row.back() < best_cost) {
      best_cost = row.back();
      best = name;
    }
  }
  return best;
}

}  // namespace tessera
