#include "files/safetensors_header.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/printable.h"

namespace tessera::files {
namespace {

using Json = nlohmann::json;

constexpr std::string_view metadata_key = "__metadata__";

// Where a byte sequence stops being UTF-8 (npos: nowhere). Overlong forms, surrogates and values
// above 0x10ffff are refused.
std::size_t find_bad_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i <= more) return i;
    std::uint32_t value = lead & (0x3f >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return i;
      value = value << 6 | (next & 0x3f);
    }
    constexpr std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (value < least[more] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return i;
    i += more + 1;
  }
  return text.npos;
}

// Events of nlohmann's parser, which keeps no call stack per nesting level; the format needs three
// levels and a fourth ends the reading.
class Reader {
 public:
  Reader(Problems& problems, Header& header) : problems_(problems), header_(header) {}

  bool null() { return scalar("null"); }
  bool boolean(bool) { return scalar("a boolean"); }
  bool number_integer(Json::number_integer_t value) {
    return number(fmt::format("the negative number {}", value), nullptr);
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    return number(fmt::format("the number {}", value), &value);
  }
  bool number_float(Json::number_float_t, const std::string& text) {
    const bool whole = text.find_first_not_of("-0123456789") == text.npos;
    return number(fmt::format("{}, which {}", text.substr(0, 40),
                              whole ? "overflows 64 bits" : "is not an integer"),
                  nullptr);
  }
  bool string(std::string& value) {
    if (at_ == At::metadata) {
      header_.metadata[field_] = std::move(value);
    } else if (at_ == At::tensor && field_ == "dtype") {
      entry().dtype = std::move(value);
    } else {
      return scalar("a string");
    }
    return true;
  }
  bool binary(Json::binary_t&) { return stop("unexpected binary value"); }

  bool start_object(std::size_t) {
    if (at_ == At::start) {
      at_ = At::top;
      return true;
    }
    if (stray()) return false;  // key() said so
    if (at_ != At::top) return stop(misplaced("an object"));
    if (name_ == metadata_key) {
      at_ = At::metadata;
      return true;
    }
    if (header_.entries.size() >= max_tensors)
      return stop(fmt::format("more than {} tensors", max_tensors));
    header_.entries.emplace_back().name = name_;
    at_ = At::tensor;
    return true;
  }

  bool key(std::string& key) {
    if (at_ == At::top) {
      name_ = std::move(key);
      if (!names_.insert(name_).second)
        problems_.note("", fmt::format("duplicate key {} in the header", in_quotes(name_)));
    } else if (at_ == At::metadata) {
      field_ = std::move(key);
      if (header_.metadata.contains(field_))
        problems_.note("", fmt::format("duplicate key {} in {}", in_quotes(field_), metadata_key));
    } else {
      field_ = std::move(key);
      bool* seen = field_ == "dtype"   ? &entry().has_dtype
                   : field_ == "shape" ? &entry().has_shape
                                       : &entry().has_offsets;
      if (stray())
        blame(fmt::format("unknown key {}, expected dtype, shape and data_offsets",
                          in_quotes(field_)));
      else if (std::exchange(*seen, true))
        blame(fmt::format("duplicate key '{}'", field_));
    }
    return true;
  }

  bool end_object() {
    at_ = at_ == At::top ? At::start : At::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (at_ == At::tensor && field_ == "shape") {
      entry().shape.clear();
      at_ = At::shape;
    } else if (at_ == At::tensor && field_ == "data_offsets") {
      entry().offsets.clear();
      at_ = At::offsets;
    } else {
      return stray() ? false : stop(misplaced("an array"));
    }
    return true;
  }

  bool end_array() {
    if (at_ == At::offsets && entry().sound && entry().offsets.size() != 2)
      blame(
          fmt::format("data_offsets needs [begin, end], found {} numbers", entry().offsets.size()));
    at_ = At::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) {
    return stop(fmt::format("the header is not valid JSON: it goes wrong at byte {}", position));
  }

 private:
  enum class At { start, top, metadata, tensor, shape, offsets };

  HeaderEntry& entry() { return header_.entries.back(); }
  // The value is of a key that no tensor has: whatever it is, it is not the mistake.
  bool stray() const {
    return at_ == At::tensor && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets";
  }

  void blame(std::string problem) {
    entry().sound = false;
    problems_.note(entry().name, std::move(problem));
  }

  std::string misplaced(std::string_view found) const {
    switch (at_) {
      case At::start:
        return fmt::format("the header must be a JSON object, found {}", found);
      case At::top:
        return name_ == metadata_key
                   ? fmt::format("{} must be an object of strings, found {}", metadata_key, found)
                   : fmt::format("tensor {} must be an object, found {}", in_quotes(name_), found);
      case At::metadata:
        return fmt::format("{} {} must be a string, found {}", metadata_key, in_quotes(field_),
                           found);
      case At::tensor:
        return fmt::format("tensor {}: {} must be {}, found {}", in_quotes(name_),
                           in_quotes(field_),
                           field_ == "dtype"   ? "a string"
                           : field_ == "shape" ? "an array"
                                               : "an array of two",
                           found);
      case At::shape:
        return fmt::format("tensor {}: shape must hold integers >= 0, found {}", in_quotes(name_),
                           found);
      case At::offsets:
        return fmt::format("tensor {}: data_offsets must hold integers >= 0, found {}",
                           in_quotes(name_), found);
    }
    return "unexpected value";
  }

  // A value of the wrong kind spoils its entry, not the reading.
  bool scalar(std::string_view found) {
    if (at_ == At::start) return stop(misplaced(found));
    if (stray()) return true;
    if (at_ != At::top && at_ != At::metadata) entry().sound = false;
    problems_.note("", misplaced(found));
    return true;
  }

  bool number(const std::string& found, const std::uint64_t* value) {
    if (!value || (at_ != At::shape && at_ != At::offsets)) return scalar(found);
    auto& list = at_ == At::shape ? entry().shape : entry().offsets;
    if (at_ == At::shape && list.size() >= max_rank)
      return stop(
          fmt::format("tensor {}: shape has more than {} dims", in_quotes(name_), max_rank));
    if (at_ == At::shape || list.size() < 3) list.push_back(*value);
    return true;
  }

  bool stop(std::string problem) {
    problems_.note("", std::move(problem));
    return false;
  }

  Problems& problems_;
  Header& header_;
  At at_ = At::start;
  std::string name_, field_;
  std::unordered_set<std::string> names_;
};

}  // namespace

void Problems::note(std::string_view tensor, std::string problem) {
  if (++count_ <= 8)
    lines_.push_back(
        {tensor.empty() ? file_ : fmt::format("{}: tensor {}", file_, in_quotes(tensor)),
         std::move(problem)});
}

void Problems::raise() const {
  CHECK(any(), "there is a problem to raise");
  Error error(ErrorKind::weights, lines_[0].problem, lines_[0].where,
              "the file is damaged or incomplete: fetch or export it again");
  for (std::size_t i = 1; i < lines_.size(); ++i)
    error.and_also(lines_[i].where + ": " + lines_[i].problem);
  if (count_ > lines_.size())
    error.and_also(fmt::format("{} more problems", count_ - lines_.size()));
  throw error;
}

std::string in_quotes(std::string_view name) { return "'" + printable(name, 120) + "'"; }

Header read_header(std::string_view json, Problems& problems) {
  Header header;
  // The parser would skip a byte order mark and take a zero byte for the end of the text.
  if (!json.starts_with('{')) {
    problems.note("", "the header must be a JSON object and start with '{'");
  } else if (const auto zero = json.find('\0'); zero != json.npos) {
    problems.note("", fmt::format("the header is not valid JSON: zero byte at byte {}", zero));
  } else if (const auto bad = find_bad_utf8(json); bad != json.npos) {
    problems.note("", fmt::format("the header is not valid UTF-8 at byte {}", bad));
  } else {
    Reader reader(problems, header);
    header.complete = Json::sax_parse(json.begin(), json.end(), &reader);
  }
  return header;
}

}  // namespace tessera::files
