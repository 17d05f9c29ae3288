#include "files/json.h"

namespace tessera::files {

using nlohmann::json;

json parse_json(std::string_view text) {
  bool deep = false;
  const json::parser_callback_t shallow = [&](int depth, json::parse_event_t event, json&) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    return !(deep |= opens && depth >= json_levels);
  };
  json out = json::parse(text.begin(), text.end(), shallow, false);
  return deep ? json(json::value_t::discarded) : out;
}

}  // namespace tessera::files
