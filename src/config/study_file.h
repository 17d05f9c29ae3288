// A study's file as it is written (docs/studies.md). Here: its claims alone.
#pragma once

#include <string>
#include <vector>

namespace tessera::config {

// What a publication says and how to test it; study/claims.h has the language of `number` and `holds`.
struct StudyClaim {
  std::string paper, says;
  std::string number, holds, unit;  // what to compute of the study's runs, what it must satisfy
  std::string untestable;           // instead of a number: why it cannot be tested
  std::string note;
};

struct StudyFile {
  std::vector<StudyClaim> claims;
};

}  // namespace tessera::config
