// The text form of a schedule and the way back. Everything is judged before anything is sized by
// it; problems are collected, so that a person sees all of them at once, each with its line and
// column.
#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "transforms/schedules.h"

namespace tessera::transforms {
namespace {

constexpr std::size_t most_name = 64;  // characters

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= most_name &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

// Text from outside, fit for a message.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 20));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return "'" + out + (text.size() > 20 ? "..." : "") + "'";
}

// Takes digits off the front of `text`; -1: there are none, or more than nine.
int take_number(std::string_view& text) {
  const std::size_t size = std::min(text.find_first_not_of("0123456789"), text.size());
  int value = -1;
  if (size > 0 && size <= 9) std::from_chars(text.data(), text.data() + size, value);
  text.remove_prefix(size);
  return value;
}

struct Word {
  std::string_view text;
  std::size_t column = 1;
};

class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  Schedule read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      const std::size_t end = std::min(text.find('\n'), text.size());
      read_line(words(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!started_) problem(1, "expected 'schedule NAME stages=N micros=N', found no such line", 1);
    if (started_ && s_.ranks.empty())
      problem(1, "expected a line 'rank 0: ...' for every rank, found none");
    for (std::size_t r = 0; r < at_line_.size(); ++r)
      if (at_line_[r] == 0)
        problem(1, "rank " + std::to_string(r) + " has no line, but a higher rank has one");
    if (count_ == 0) return std::move(s_);
    Error error(ErrorKind::usage, problems_[0].second, problems_[0].first,
                "the format is described in docs/pipeline.md");
    for (std::size_t i = 1; i < problems_.size(); ++i)
      error.and_also(problems_[i].first + ": " + problems_[i].second);
    if (count_ > problems_.size())
      error.and_also(std::to_string(count_ - problems_.size()) + " more problems");
    throw error;
  }

 private:
  void problem(std::size_t column, const std::string& text, int line = 0) {
    if (++count_ > most_shown) return;
    problems_.emplace_back(where_ + ":" + std::to_string(line > 0 ? line : std::max(1, line_)) +
                               ":" + std::to_string(column),
                           text);
  }

  // Up to a comment.
  static std::vector<Word> words(std::string_view line) {
    std::vector<Word> out;
    line = line.substr(0, line.find('#'));
    for (std::size_t i = 0; i < line.size();) {
      i = line.find_first_not_of(" \t\r", i);
      if (i == line.npos) break;
      const std::size_t end = std::min(line.find_first_of(" \t\r", i), line.size());
      out.push_back({line.substr(i, end - i), i + 1});
      i = end;
    }
    return out;
  }

  void read_line(const std::vector<Word>& words) {
    if (words.empty()) return;
    if (words[0].text == "schedule")
      header(words);
    else if (words[0].text == "rank")
      rank(words);
    else
      problem(words[0].column,
              "expected 'schedule NAME ...' or 'rank N: ...', found " + shown(words[0].text));
  }

  void header(const std::vector<Word>& words) {
    if (started_)
      return problem(words[0].column, "a second 'schedule' line; a text holds one schedule");
    started_ = true;
    if (!s_.ranks.empty())
      problem(words[0].column, "the 'schedule' line must stand before the ranks");
    if (words.size() < 2 || !is_name(words[1].text))
      problem(words[std::min<std::size_t>(1, words.size() - 1)].column,
              "expected 'schedule NAME' with up to 64 letters, digits, '_', '-' and '.', found " +
                  (words.size() < 2 ? "nothing" : shown(words[1].text)));
    else
      s_.name = words[1].text;
    bool stages = false, micros = false;
    for (std::size_t i = 2; i < words.size(); ++i) {
      if (words[i].text.starts_with("stages="))
        size(words[i], stages, s_.stages, most_stages);
      else if (words[i].text.starts_with("micros="))
        size(words[i], micros, s_.micros, most_micros);
      else
        problem(words[i].column, "expected stages=N or micros=N, found " + shown(words[i].text));
    }
    if (!stages) problem(words[0].column, "expected stages=N, the number of stages, found none");
    if (!micros)
      problem(words[0].column, "expected micros=N, the number of micro-batches, found none");
    const bool known = stages && micros && s_.stages > 0 && s_.micros > 0;
    if (known && std::int64_t{s_.stages} * s_.micros > most_turns)
      problem(words[0].column,
              "stages x micros is more than " + std::to_string(most_turns) + " turns");
  }

  // "stages=4": a value that is refused becomes 0, and nothing is compared with it.
  void size(const Word& word, bool& given, int& value, int most) {
    const std::size_t equals = word.text.find('=') + 1;
    std::string_view digits = word.text.substr(equals);
    if (given)
      problem(word.column, std::string(word.text.substr(0, equals - 1)) + " is given twice");
    given = true;
    value = take_number(digits);
    if (value >= 1 && value <= most && digits.empty()) return;
    value = 0;
    problem(word.column + equals, "expected a number from 1 to " + std::to_string(most) +
                                      ", found " + shown(word.text.substr(equals)));
  }

  void rank(const std::vector<Word>& words) {
    if (!started_ && !told_) {
      problem(words[0].column, "expected 'schedule NAME stages=N micros=N' before the first rank");
      s_.stages = s_.micros = 0;
      told_ = true;
    }
    std::string_view number = words.size() < 2 ? std::string_view() : words[1].text;
    const int r = take_number(number);
    if (r < 0 || r >= most_ranks || number != ":")
      return problem(words[std::min<std::size_t>(1, words.size() - 1)].column,
                     "expected 'rank N:' with N from 0 to " + std::to_string(most_ranks - 1) +
                         ", found " + (words.size() < 2 ? "nothing" : shown(words[1].text)));
    const auto index = static_cast<std::size_t>(r);
    if (s_.ranks.size() <= index) {
      s_.ranks.resize(index + 1);
      at_line_.resize(index + 1, 0);
    }
    if (at_line_[index] > 0)
      return problem(words[1].column, "a second line of rank " + std::to_string(r) +
                                          "; the first is line " + std::to_string(at_line_[index]));
    at_line_[index] = line_;
    for (std::size_t i = 2; i < words.size(); ++i) turn(words[i], s_.ranks[index]);
  }

  void turn(const Word& word, std::vector<Turn>& turns) {
    std::string_view rest = word.text;
    Turn t;
    const std::size_t work = std::string_view("FBW").find(rest[0]);
    rest.remove_prefix(1);
    t.stage = take_number(rest);
    const bool point = rest.starts_with('.');
    if (point) rest.remove_prefix(1);
    t.micro = take_number(rest);
    if (work == std::string_view::npos || t.stage < 0 || !point || t.micro < 0 || !rest.empty())
      return problem(word.column,
                     "expected a turn such as F0.1 (F, B or W, stage, point, micro-batch), found " +
                         shown(word.text));
    t.work = static_cast<Work>(work);
    if (s_.stages > 0 && t.stage >= s_.stages)
      problem(word.column,
              name(t) + " has no such stage; there are 0 to " + std::to_string(s_.stages - 1));
    if (s_.micros > 0 && t.micro >= s_.micros)
      problem(word.column, name(t) + " has no such micro-batch; there are 0 to " +
                               std::to_string(s_.micros - 1));
    if (++turns_ == most_turns + 1)
      problem(word.column, "more than " + std::to_string(most_turns) + " turns");
    if (turns_ <= most_turns) turns.push_back(t);
  }

  const std::string& where_;
  Schedule s_;
  int line_ = 0;
  bool started_ = false, told_ = false;  // a header was seen; its absence was told
  std::vector<int> at_line_;             // of each rank; 0: none yet
  std::int64_t turns_ = 0;
  std::vector<std::pair<std::string, std::string>> problems_;  // where, what
  std::size_t count_ = 0;
};

}  // namespace

std::string print(const Schedule& schedule) {
  CHECK(is_name(schedule.name), "a schedule is named " + shown(schedule.name));
  std::string out = "schedule " + schedule.name + " stages=" + std::to_string(schedule.stages) +
                    " micros=" + std::to_string(schedule.micros) + "\n";
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    out += "rank " + std::to_string(r) + ":";
    for (const Turn& t : schedule.ranks[r]) out += " " + name(t);
    out += "\n";
  }
  return out;
}

Schedule parse_schedule(std::string_view text, const std::string& where) {
  return Reader(where).read(text);
}

}  // namespace tessera::transforms
