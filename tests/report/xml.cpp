// A small reader of well-formed documents, strict where a browser is lenient: what it does not know
// is a mistake of ours.
#include <array>
#include <cctype>
#include <stdexcept>

#include "report/sample.h"

namespace tessera::report::test {
namespace {

class Xml {
 public:
  explicit Xml(const std::string& text) : text_(text) {}

  std::vector<Element> read() {
    if (text_.starts_with("<!DOCTYPE html>")) at_ = 15;
    while (at_ < text_.size()) {
      if (text_[at_] != '<') {
        const std::string said = characters('<');
        if (!open_.empty())
          out_[open_.back()].text += said;
        else if (said.find_first_not_of(" \n") != said.npos)
          wrong("text outside of the document");
      } else if (text_.compare(at_, 2, "</") == 0) {
        at_ += 2;
        const std::string closed = word();
        if (open_.empty() || out_[open_.back()].name != closed)
          wrong("</" + closed + "> closes nothing");
        open_.pop_back();
        expect('>');
      } else {
        element();
      }
    }
    if (!open_.empty()) wrong("<" + out_[open_.back()].name + "> is not closed");
    return std::move(out_);
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    throw std::runtime_error(what + " at " + std::to_string(at_) + ": ..." +
                             text_.substr(at_ > 60 ? at_ - 60 : 0, 120));
  }
  void expect(char c) {
    if (at_ >= text_.size() || text_[at_] != c) wrong(std::string("expected ") + c);
    ++at_;
  }
  std::string word() {
    const std::size_t from = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '-' || text_[at_] == ':'))
      ++at_;
    if (at_ == from) wrong("expected a name");
    return text_.substr(from, at_ - from);
  }
  // Up to `end`, with entities resolved and every byte of a control character refused.
  std::string characters(char end) {
    std::string out;
    while (at_ < text_.size() && text_[at_] != end) {
      const char c = text_[at_];
      if (c == '<' || (static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127)
        wrong("a character that has to be escaped");
      if (c != '&') {
        out += c;
        ++at_;
        continue;
      }
      static const std::array<std::pair<const char*, char>, 5> known = {
          {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}}};
      bool found = false;
      for (const auto& [entity, letter] : known)
        if (!found && text_.compare(at_, std::string(entity).size(), entity) == 0) {
          out += letter;
          at_ += std::string(entity).size();
          found = true;
        }
      if (!found) wrong("an unknown entity");
    }
    return out;
  }
  void element() {
    expect('<');
    Element e;
    e.name = word();
    e.depth = static_cast<int>(open_.size());
    while (at_ < text_.size() && text_[at_] == ' ') {
      ++at_;
      const std::string name = word();
      expect('=');
      expect('"');
      e.attributes.emplace_back(name, characters('"'));
      expect('"');
    }
    const bool alone = at_ < text_.size() && text_[at_] == '/';
    if (alone) ++at_;
    expect('>');
    out_.push_back(std::move(e));
    if (!alone) open_.push_back(out_.size() - 1);
  }

  const std::string& text_;
  std::size_t at_ = 0;
  std::vector<Element> out_;
  std::vector<std::size_t> open_;
};

}  // namespace

std::vector<Element> parse_xml(const std::string& text) { return Xml(text).read(); }

void for_each_string(Study& study, const std::function<void(std::string&)>& change) {
  const auto pairs = [&](auto& list) {
    for (auto& [key, value] : list) {
      change(key);
      change(value);
    }
  };
  for (std::string* s : {&study.name, &study.title, &study.what, &study.file, &study.command})
    change(*s);
  for (Part& part : study.parts) {
    for (std::string* s : {&part.name, &part.title, &part.what, &part.axis, &part.published_by})
      change(*s);
    for (auto& [row, value] : part.published) change(row);
    for (Point& p : part.points) {
      change(p.technique);
      pairs(p.axes);
      pairs(p.fixed);
      for (Repeat& r : p.repeats) {
        change(r.reason);
        change(r.command);
        change(r.folder);
        if (!r.record) continue;
        RunRecord& run = *r.record;
        for (std::string* s :
             {&run.verb, &run.folder, &run.model, &run.data, &run.dtype, &run.layout})
          change(*s);
        for (RankRecord& k : run.by_rank) {
          change(k.host);
          change(k.device);
        }
        for (PartRecord& k : run.parts) change(k.name);
        pairs(run.settings);
        nlohmann::ordered_json env = nlohmann::ordered_json::object();
        for (const auto& [key, value] : run.env.items()) {
          std::string k = key, v = value.is_string() ? value.get<std::string>() : "";
          if (value.is_string()) change(v);
          env[k] = value.is_string() ? nlohmann::ordered_json(v) : value;
          change(k);
          env[k] = v;
        }
        run.env = env;
      }
    }
  }
  for (ClaimResult& c : study.claims)
    for (std::string* s : {&c.paper, &c.says, &c.command, &c.number, &c.verdict, &c.note})
      change(*s);
}

}  // namespace tessera::report::test
